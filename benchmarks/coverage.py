"""Measure how often the suggested measurement budget suffices, on folds not calibrated on.

`python -m benchmarks.coverage RUN...` takes finished runs. The budget of every program is
calibrated on the programs of the other folds. In a run with `--scheme family` these are of other
families, and its models have seen no relative. The second table of a run has only the largest
third of each family; the largest third of other families does not count in its calibration. The
last row of a table has the programs of all collections.

`python -m benchmarks.coverage --bundled` prints the same two tables for the bundled models, from
the programs in the bundle's record. Random orders are unknown there.

`python -m benchmarks.coverage --unseen FOLDER` takes the bundled models, and the folder's labelled
graphs that they have not learned from: all, and those whose structure they have not seen either, so
that they are not other sizes of a program. Their families may have been seen.
"""

import argparse
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ensembles import DEFAULT_RECIPE
from ensembles.merge import find_members
from ensembles.recipe import find_recipe
from solution import load_bundle, read_graph
from solution.data.folders import find_files
from solution.domain import predictions
from solution.runs.folder import Run
from solution.serving.calibration import (
    CONFIDENCE,
    REGRET,
    Facts,
    find_steps,
    learn,
    measure,
    needed,
)
from solution.serving.packing import Ranked, list_programs, list_steps, read_ranked
from solution.serving.record import Program, hash_name

DRAWS = 20  # random orders per program
SCHEMA = {"program": pl.String, "k": pl.Int64, "needed": pl.Int64, "configs": pl.Int64,
          "random": pl.Float64}  # fmt: skip
COLUMNS = (
    "Collection",
    "Programs",
    "Answered",
    "Covered",
    "Abstained",
    "Mean k",
    "Random",
    "Configs",
)


@dataclass(frozen=True)
class Asked:
    """A program out of fold, and random orders of it."""

    fold: int
    program: Program
    random: list[Program]


def read_programs(run: Run, recipe: str) -> dict[str, list[Asked]]:
    """Return the programs of a run by collection."""
    chosen = find_recipe(recipe)
    ranked = read_ranked(run, chosen, {*chosen.names(), chosen.fallback or ""})
    folds = predictions.read(run.graphs).select("collection", "graph", "fold")
    known = {(c, g): fold for c, g, fold in folds.iter_rows()}
    ordered = list_programs(run, set(), list_steps(ranked))
    draws = [list_programs(run, set(), list_steps(_shuffle(ranked, seed))) for seed in range(DRAWS)]
    keys: dict[str, list[tuple[str, str]]] = {}
    for row in folds.iter_rows():
        if row[:2] in ranked:
            keys.setdefault(row[0], []).append(row[:2])
    return {
        name: [
            Asked(
                fold=known[key],
                program=program,
                random=[draw[name][place] for draw in draws],
            )
            for place, (key, program) in enumerate(zip(keys[name], own, strict=True))
        ]
        for name, own in ordered.items()
    }


def _shuffle(ranked: Ranked, seed: int) -> Ranked:
    generator = np.random.default_rng(seed)
    return {key: (generator.permutation(order), times) for key, (order, times) in ranked.items()}


def split_largest(asked: Sequence[Asked]) -> tuple[list[Asked], list[Asked]]:
    """Return the largest third of each family (the first word of names), by nodes, and the other
    graphs; all graphs of a family with fewer than three are among these."""
    families: dict[str, list[Asked]] = {}
    for one in sorted(asked, key=lambda one: one.program.nodes):
        families.setdefault(one.program.family, []).append(one)
    largest, others = [], []
    for family in families.values():
        count = len(family) - len(family) // 3
        others += family[:count]
        largest += family[count:]
    return largest, others


def read_bundled() -> tuple[dict[str, list[Asked]], dict[str, dict[str, float]]]:
    """Return the bundled models' programs that were predicted out of fold, each family a fold, and
    the weights of the members, both by collection."""
    bundle = load_bundle()
    found = {
        name: [Asked(zlib.crc32(p.group.encode()), p, []) for p in programs if p.steps]
        for name, programs in bundle.record.programs.items()
    }
    return found, {name: bundle.weights(name) for name in found}


def find_weights(run: Run, recipe: str) -> dict[str, dict[str, float]]:
    """Return {collection: {experiment: weight}} of the recipe's members that predicted it."""
    chosen, found = find_recipe(recipe), {}
    paths = find_members(run, chosen, "out_of_fold").items()
    predicted = {
        name: set(predictions.read(path, ["collection"])["collection"])
        for name, path in paths
        if path.is_file()
    }
    for collection in set().union(*predicted.values()):
        weights = chosen.weights(collection).items()
        found[collection] = {n: w for n, w in weights if collection in predicted.get(n, ())}
    return found


def ask(
    name: str,
    asked: Sequence[Asked],
    calibrating: Mapping[str, Sequence[Asked]],
    weights: Mapping[str, Mapping[str, float]],
) -> pl.DataFrame:
    """Return the budget of each asked program of the collection `name` (null: abstained) and its
    required number; the same for random orders. The budgets are calibrated on the programs of other
    folds in `calibrating`."""
    rows, known = [], {}
    for one in asked:
        own = one.program
        if one.fold not in known:
            others = {
                key: [other for other in programs if other.fold != one.fold]
                for key, programs in calibrating.items()
            }
            ordered = [{key: [o.program for o in found] for key, found in others.items()}]
            ordered += [
                {key: [o.random[draw] for o in found] for key, found in others.items()}
                for draw in range(len(one.random))
            ]
            known[one.fold] = [learn(programs, weights)[name] for programs in ordered]
        facts = Facts(own.architecture, own.nodes, own.edges, own.configurable)
        k, *random = (measure(facts, own.ranked, learned).k for learned in known[one.fold])
        ks = [drawn for drawn in random if drawn is not None]
        rows.append(
            {
                "program": own.architecture,
                "k": k,
                "needed": needed(own.steps, REGRET),
                "configs": own.ranked,
                "random": float(np.mean(ks)) if ks else None,
            }
        )
    return pl.DataFrame(rows, SCHEMA)


def ask_bundle(folder: Path) -> dict[str, pl.DataFrame]:
    """Return the same table by collection, without random orders, of the labelled graphs in a
    folder that the bundled models have not learned from."""
    bundle = load_bundle()
    learned = {
        (name, program.name)
        for name, programs in bundle.record.programs.items()
        for program in programs
    }
    rows: dict[str, list[dict[str, object]]] = {}
    for file in track(find_files(folder)):
        name = file.collection.name
        if (name, hash_name(name, file.name)) in learned:
            continue
        graph = read_graph(file.path)
        if graph.runtimes is None:
            continue
        ranking = bundle.rank(graph)
        row = {
            "program": graph.architecture,
            "k": ranking.measure,
            "needed": needed(find_steps(ranking.order, graph.runtimes), REGRET),
            "configs": graph.num_configs,
            "random": None,
        }
        for kind in (name,) if ranking.known else (name, f"{name}, new structure"):
            rows.setdefault(kind, []).append(row)
    return {name: pl.DataFrame(own, SCHEMA) for name, own in sorted(rows.items())}


def show(name: str, tables: dict[str, pl.DataFrame], *, summed: bool = False) -> Table:
    """Return a table with a row per collection and, if `summed`, a row of all together."""
    title = f"{name}: within {REGRET:.0%} of the best, promised for {CONFIDENCE:.0%} of programs"
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "Collection" else "right")
    if summed:  # a program counts once in each collection
        named = [
            asked.with_columns(program=pl.lit(f"{collection} ") + pl.col("program"))
            for collection, asked in tables.items()
        ]
        tables = {**tables, "all": pl.concat(named)}
    for collection, asked in tables.items():
        table.add_row(collection, *_summarise(asked))
    return table


def _summarise(asked: pl.DataFrame) -> list[str]:
    answered = asked.filter(pl.col("k").is_not_null())
    # Graphs of one program share one weight.
    covered = answered.with_columns(covered=pl.col("needed") <= pl.col("k"))
    means = covered.group_by("program").agg(pl.col("covered", "k", "random", "configs").mean())
    shown = [str(asked["program"].n_unique()), str(len(means))]
    shown.append(f"{means['covered'].mean():.1%}" if len(answered) else "-")
    shown.append(f"{1 - len(answered) / len(asked):.1%}")
    for column in ("k", "random", "configs"):
        value = means[column].mean() if len(answered) else None
        shown.append("-" if value is None else f"{value:.1f}")
    return shown


def show_both(
    console: Console,
    title: str,
    asked: Mapping[str, Sequence[Asked]],
    weights: Mapping[str, Mapping[str, float]],
) -> None:
    """Print the table of all programs, and that of the largest."""
    divided = {name: split_largest(own) for name, own in asked.items()}
    others = {name: smaller for name, (_, smaller) in divided.items()}
    everything = {name: ask(name, own, asked, weights) for name, own in asked.items()}
    largest = {name: ask(name, own, others, weights) for name, (own, _) in divided.items()}
    console.print(show(f"{title}, all programs", everything, summed=True))
    console.print(show(f"{title}, the largest", largest, summed=True))


def main() -> None:
    """Print a table for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--recipe", default=DEFAULT_RECIPE)
    parser.add_argument("--bundled", action="store_true", help="the bundled models' record")
    parser.add_argument("--unseen", type=Path, help="a folder of labelled graphs")
    options = parser.parse_args()
    console = Console(width=100)
    if not options.runs and options.unseen is None and not options.bundled:
        parser.error("expected a run, --bundled or --unseen")
    if options.unseen is not None:
        console.print(show("The bundled models, graphs unseen", ask_bundle(options.unseen)))
    if options.bundled:
        show_both(console, "The bundled models", *read_bundled())
    for folder in options.runs:
        run = Run.existing(folder)
        asked, weights = read_programs(run, options.recipe), find_weights(run, options.recipe)
        show_both(console, folder.name, asked, weights)


if __name__ == "__main__":
    main()
