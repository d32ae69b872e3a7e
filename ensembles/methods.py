"""The merging methods of ensembles.votes, applied to keyed frames of many graphs."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ensembles.votes import Method, combine, scale
from solution.domain.predictions import KEYS, RANKING_SCHEMA, REQUEST_KEYS
from solution.system.errors import InputError
from solution.system.parquet import GRAPH


def normalise(predictions: pl.DataFrame, method: Method = "mean_rank") -> pl.DataFrame:
    """Return one experiment on the method's scale, its folds and seeds averaged.

    Args:
        predictions: collection, graph, config, fold, seed, score; in any order.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.
    """
    ordered = predictions.sort(KEYS)
    numbered = ordered.select(
        pl.struct(REQUEST_KEYS).rle_id().alias("config"),
        pl.struct(pl.struct(GRAPH).rle_id(), "fold", "seed").rank("dense").alias("model"),
        pl.col("score").cast(pl.Float64),
    )
    config, model, score = (numbered[name].to_numpy() for name in numbered.columns)
    # The rows of a model in a graph are brought together and scaled; then each configuration gets
    # the mean over its rows, added up by fold and seed.
    scaled = np.empty(len(score))
    by_model = np.argsort(model, kind="stable")
    for rows in np.split(by_model, np.flatnonzero(np.diff(model[by_model])) + 1):
        if len(rows):
            scaled[rows] = scale(score[rows], method)
    means = np.bincount(config, weights=scaled) / np.bincount(config)
    keys = ordered.select(REQUEST_KEYS).unique(maintain_order=True)
    return keys.with_columns(score=pl.Series(means)).cast(RANKING_SCHEMA)


def merge(
    members: Mapping[str, pl.DataFrame],
    weights: Mapping[str, float],
    method: Method = "mean_rank",
) -> pl.DataFrame:
    """Return the ranking of the members by the method.

    Args:
        members: by name, the result of `normalise`; all of the same configurations.
        weights: by name, positive; only their ratios matter.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    check_aligned(members)
    names = sorted(members)
    votes = np.stack([members[name]["score"].cast(pl.Float64).to_numpy() for name in names])
    merged = combine(votes, np.array([float(weights[name]) for name in names]), method)
    return members[names[0]].with_columns(score=pl.Series(merged)).cast(RANKING_SCHEMA)


def check_aligned(members: Mapping[str, pl.DataFrame]) -> None:
    """Refuse members of different configurations.

    Args:
        members: by name, frames of RANKING_SCHEMA, sorted by their keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    keys = {name: frame.select(REQUEST_KEYS) for name, frame in members.items()}
    first = next(iter(keys.values()))
    if all(other.equals(first) for other in keys.values()):
        return
    wanted = pl.concat(keys.values()).unique()
    for name, own in sorted(keys.items()):
        missing = wanted.join(own, on=REQUEST_KEYS, how="anti").sort(REQUEST_KEYS)
        if len(missing):
            lacks = missing.row(0, named=True)
            raise InputError(
                f"{name} has no prediction for {lacks['collection']}:{lacks['graph']}, "
                f"configuration {lacks['config']}, and {len(missing) - 1} more that other members "
                "have. Make its predictions again, take it out of the recipe, or let the recipe "
                'allow_missing = ["graphs"].'
            )


def split_by_presence(
    members: Mapping[str, pl.DataFrame],
) -> list[dict[str, pl.DataFrame]]:
    """Divide the graphs by which members rank all of their configurations.

    Ranks in a part of a graph mean something else than ranks in the whole, so a member counts in a
    graph only where it has every configuration that any member has.

    Args:
        members: by name, frames of RANKING_SCHEMA, sorted by their keys.

    Returns:
        For each set of members, what they say of the graphs that exactly they rank whole. Graphs
        that no member ranks whole are not there.
    """
    wanted = pl.concat([frame.select(REQUEST_KEYS) for frame in members.values()]).unique()
    sizes = wanted.group_by(GRAPH).agg(pl.len().alias("configs"))
    counts = [
        frame.group_by(GRAPH).agg(pl.len().alias("configs")).join(sizes, on=[*GRAPH, "configs"])
        .select(*GRAPH, pl.lit(name).alias("member"))
        for name, frame in sorted(members.items())
    ]  # fmt: skip
    present = pl.concat(counts).group_by(GRAPH).agg(pl.col("member").sort())
    return [
        {
            name: members[name].join(graphs, on=GRAPH, how="semi").sort(REQUEST_KEYS)
            for name in names
        }
        for (names,), graphs in present.sort(GRAPH).group_by("member", maintain_order=True)
    ]
