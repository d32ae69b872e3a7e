"""Train every published system as long as it needs: until its validation score stops rising.

    make papers-patient     .venv/bin/python -m benchmarks.paper_needs DATA --minutes 15

`make papers` gives all systems the same seconds, which favours cheap ones. Here a net is
trained until its validation score has not risen for its own patience, for at most `--minutes`
on one thread; nets without early stopping, like ours for layouts, run their own epochs; trees
train to the end. There is one fold scheme, by architecture; nets with attention among all nodes
are scored on fewer configurations (benchmarks.claims.configs_of). Finished fits are kept in
build/paper-needs and not repeated; `--only` measures a part. Fits that reach the time limit are
counted: they may have needed more.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.claims import fit_of
from benchmarks.paper_report import (
    KINDS,
    OURS,
    as_markdown,
    replace_between,
    show,
    tabulate,
)
from benchmarks.parts import FOLDS, Fit, compute, prepare, read_parts
from solution.commands.options import ClusterAddress, ExecutorOption, make_executor
from solution.domain.collection import LAYOUT, TILE
from solution.system.pictures import save_figure

PLOT = Path("solution/experiments/learning_curves.png")
AT_CAP = 0.9  # share of the time limit from which a fit counts as stopped by it


def list_fits(
    minutes: float, seeds: int, folds: int = FOLDS, only: Sequence[str] = ()
) -> list[Fit]:
    """Return every system, collection, fold and seed, for systems whose names contain one of
    `only`."""
    return [
        fit_of(name, system, collection, fold, seed, 60 * minutes, "patient")
        for seed in range(seeds)
        for _, collections, systems in KINDS
        for (name, system), collection, fold in product(systems.items(), collections, range(folds))
        if not only or any(word in name for word in only)
    ]


def count_late(kind: str, scores: pl.DataFrame, minutes: float) -> list[list[str]]:
    """Print a kind's table, and the number of each system's fits that the time limit stopped."""
    _, collections, systems = next(row for row in KINDS if row[0] == kind)
    header, *rows = tabulate(scores, collections, systems)
    counted = [[*header, "Fits at the cap"]]
    for row in rows:
        own = scores.filter(pl.col("system") == row[0], pl.col("collection").is_in(collections))
        fits = own.unique(["collection", "fold", "seed"])
        late = (fits["seconds"] > AT_CAP * 60 * minutes).sum()
        counted.append([*row, f"{late} of {len(fits)}"])
    return counted


def draw_curves(scores: pl.DataFrame) -> Figure:
    """Draw each system's best validation score so far against seconds, for fold 0 and seed 0."""
    collections = [name for name in (*LAYOUT, *TILE) if name in set(scores["collection"])]
    figure = Figure(figsize=(15, 4.6 * -(-len(collections) // 2)), layout="constrained")
    panels = figure.subplots(-(-len(collections) // 2), 2, squeeze=False).ravel()
    for axes, name in zip(panels, collections, strict=False):
        first = scores.filter(collection=name, fold=0, seed=0).unique("system").sort("system")
        for number, row in enumerate(first.iter_rows(named=True)):
            if not row["curve_scores"]:
                continue
            best = pl.Series(row["curve_scores"]).cum_max()
            bold = {"lw": 2.4, "color": "C3"} if row["system"] in OURS else {"lw": 1.1}
            axes.plot(
                row["curve_seconds"], best, label=row["system"],
                ls=("-", "--", ":")[number // 10 % 3], **bold,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlabel("seconds of training, one thread")
        axes.set_ylabel("best validation score so far")
        axes.set_title(name)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    for axes in panels[len(collections) :]:
        axes.set_axis_off()
    return figure


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    minutes: Annotated[float, typer.Option(help="A fit may take, at most.")] = 15.0,
    seeds: int = 1,
    folds: Annotated[int, typer.Option(help="Of the scheme, so many are measured.")] = FOLDS,
    workers: int = 2,
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    only: Annotated[list[str], typer.Option(help="Systems that hold these words.")] = [],  # noqa: B006
    out: Annotated[Path, typer.Option()] = Path("build/paper-needs"),
    report: Annotated[Path | None, typer.Option(help="The folder of the log to write to.")] = None,
) -> None:
    """Measure what is missing, print the tables, draw the curves."""
    fits = list_fits(minutes, seeds, folds, only)
    done_on = make_executor(executor, address, workers)
    compute(fits, prepare(data, out), out / "parts", done_on, "Fits")
    scores = read_parts(list_fits(minutes, seeds, folds), out / "parts")
    tables = [count_late(kind, scores, minutes) for kind, _, _ in KINDS]
    for (kind, _, _), rows in zip(KINDS, tables, strict=True):
        Console(width=160).print(show(f"{kind}: what it needs, at most {minutes:g} min", rows))
    save_figure(draw_curves(scores), (report or out) / (PLOT if report else PLOT.name))
    if report is not None:
        text = "\n\n".join(as_markdown(rows, kind) for (kind, _, _), rows in
                           zip(KINDS, tables, strict=True))  # fmt: skip
        replace_between(report / "solution/experiments/LOG.md", text, "make papers-patient")


if __name__ == "__main__":
    typer.run(main)
