"""Measure how often the suggested measurement budget suffices, on folds not calibrated on.

`python -m benchmarks.coverage RUN...` takes finished runs. The budget of every program is
calibrated first on the programs of the other folds, then on those of other families; its models
have seen those of its family in other folds in both cases.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from solution.domain import predictions
from solution.runs.folder import Run
from solution.serving.calibration import (
    CONFIDENCE,
    REGRET,
    Facts,
    Learned,
    measure,
    needed,
)
from solution.serving.packing import Ranked, list_programs, list_steps, read_ranked
from solution.serving.record import Program

DRAWS = 20  # random orders per program
COLUMNS = ("Collection", "Programs", "Covered", "Abstained", "Mean k", "Random", "Configs")


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


def ask(asked: Sequence[Asked], *, families: bool) -> pl.DataFrame:
    """Return each program's budget (null: abstained) and its required number; the same for
    random orders."""
    rows = []
    known: dict[tuple[int, str], tuple[Learned, list[Learned]]] = {}
    for one in asked:
        own = one.program
        key = one.fold, own.family if families else ""
        if key not in known:
            others = [
                other
                for other in asked
                if other.fold != one.fold and not (families and other.program.family == own.family)
            ]
            drawn = [Learned([other.random[draw] for other in others]) for draw in range(DRAWS)]
            known[key] = Learned([other.program for other in others]), drawn
        learned, drawn = known[key]
        facts = Facts(own.architecture, own.nodes, own.edges, own.configurable)
        found = measure(facts, own.ranked, learned)
        random = [draw.quantile(REGRET, CONFIDENCE) for draw in drawn]
        ks = [min(k, own.ranked) for k in random if k is not None]
        rows.append(
            {
                "family": own.family,
                "group": own.group,
                "k": found.k,
                "needed": needed(own.steps, REGRET),
                "configs": own.ranked,
                "random": float(np.mean(ks)) if ks else None,
            }
        )
    return pl.DataFrame(rows)


def show(name: str, tables: dict[str, pl.DataFrame]) -> Table:
    """Print a row per collection."""
    title = f"{name}: within {REGRET:.0%} of the best, promised for {CONFIDENCE:.0%} of programs"
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "Collection" else "right")
    for collection, asked in tables.items():
        answered = asked.filter(pl.col("k").is_not_null())
        # Graphs of one program share one weight.
        covered = answered.with_columns(covered=pl.col("needed") <= pl.col("k"))
        means = covered.group_by("group").agg(pl.col("covered", "k", "random", "configs").mean())
        groups = asked["group"].n_unique()
        shown = [collection, str(groups)]
        if len(answered):
            shown.append(f"{means['covered'].mean():.1%}")
        else:
            shown.append("-")
        shown.append(f"{1 - len(answered) / len(asked):.1%}")
        for column in ("k", "random", "configs"):
            value = means[column].mean() if len(answered) else None
            shown.append("-" if value is None else f"{value:.1f}")
        table.add_row(*shown)
    return table


def main() -> None:
    """Print a table for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--recipe", default=DEFAULT_RECIPE)
    options = parser.parse_args()
    console = Console(width=100)
    for folder in options.runs:
        asked = read_programs(Run.existing(folder), options.recipe)
        for families in (False, True):
            tables = {name: ask(own, families=families) for name, own in asked.items()}
            title = f"{folder.name}, {'other families' if families else 'other folds'}"
            console.print(show(title, tables))


if __name__ == "__main__":
    main()
