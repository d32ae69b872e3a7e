"""Make stacked predictions, score tables and runs from a seed, with members of known quality."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import TABLE_SCHEMA
from ensembles.votes import METHODS, Method
from ensembles.weights import Ballot, make_ballots
from solution.domain import predictions
from solution.domain.predictions import SCHEMA
from solution.runs.folder import Run
from solution.system.files import write_sealed

LAYOUT = "layout:xla:random"
LABELS = pl.Schema({**{k: SCHEMA[k] for k in ("collection", "graph", "config")}, "runtime": float})


def make_tables(
    noises: Sequence[float], graphs: int, configs: int = 12, collection: str = LAYOUT, seed: int = 0
) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Return predictions by member, and labels.

    Args:
        noises: standard deviation of each member's errors, in deviations of the runtimes.
    """
    generator = np.random.default_rng(seed)
    runtimes = generator.normal(size=(graphs, configs))
    keys = [(collection, f"graph_{g:03}", c) for g in range(graphs) for c in range(configs)]
    rows = [(*key, value + 10) for key, value in zip(keys, runtimes.ravel(), strict=True)]
    labels = pl.DataFrame(rows, schema=LABELS, orient="row")
    members = {}
    for place, noise in enumerate(noises):
        scores = (runtimes + noise * generator.normal(size=runtimes.shape)).ravel()
        rows = [(*key, 0, 0, score) for key, score in zip(keys, scores, strict=True)]
        members[f"member_{place}"] = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return members, labels


def make_score_table(
    scores: Mapping[tuple[str, str], Sequence[float]], of_a_group: int = 1
) -> pl.DataFrame:
    """Return a score table.

    Args:
        scores: by collection and member, the scores of its graphs.
        of_a_group: number of consecutive graphs in a group.
    """
    rows = [
        (collection, f"graph {place:04}", f"group {place // of_a_group:04}", member, float(value))
        for (collection, member), values in scores.items()
        for place, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=TABLE_SCHEMA, orient="row")


def draw_ballots(
    noises: Sequence[float], graphs: int, methods: Sequence[Method] = METHODS, seed: int = 0
) -> list[Ballot]:
    """Return the stacked predictions of members with these noises; two graphs share a group."""
    members, labels = make_tables(noises, graphs, seed=seed)
    groups = {(LAYOUT, f"graph_{g:03}"): f"xla/{g // 2}" for g in range(graphs)}
    return make_ballots(members, labels, groups, methods)


def write_run(folder: Path, noises: Sequence[float], graphs: int = 12, seed: int = 0) -> Run:
    """Write a run of a layout and the tile collection; nothing_001 predicts 0 everywhere."""
    layout, labels = make_tables(noises, graphs, seed=seed)
    tile, tile_labels = make_tables(noises, graphs, collection="tile:xla", seed=seed + 1)
    frames = {name: pl.concat([layout[name], tile[name]]) for name in layout}
    frames["nothing_001"] = frames["member_0"].with_columns(pl.lit(0, pl.Float32).alias("score"))
    run = Run(folder)
    write_sealed({"settings": {"experiments": dict.fromkeys(frames, {})}}, folder / "run.json")
    for name, frame in frames.items():
        for part in predictions.PARTS:
            predictions.write(frame, run.predictions(name, part))
    both = pl.concat([labels, tile_labels])
    predictions.write(both, run.labels)
    known = both.select("collection", "graph").unique().sort("collection", "graph")
    number = pl.col("graph").str.slice(-3).cast(pl.Int32) // 2
    group = pl.col("collection").str.split(":").list.last() + "/" + number.cast(pl.String)
    predictions.write(known.with_columns(labelled=pl.lit(True), group=group), run.graphs)
    return run
