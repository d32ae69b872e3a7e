"""Measure scores by training time: of a net and of the ensemble, in minutes of two cores.

    python -m benchmarks.budgets CPUGRAPHS --plot solution/experiments/budgets.png

Out of fold on layout programs, in the folds by architecture of `fastslow run`. Less than a full
training means one seed and fewer epochs, with the complete learning-rate schedule. More means the
average of several seeds: groups of seeds do not overlap, and the lowest and highest score of a
group stand beside the mean. The ensemble is the recipe `best` and takes the time of both its
members. Minutes are processor time of two cores. Each training of all folds leaves a file below
build/budgets, so an interrupted benchmark resumes.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter
from rich.console import Console
from rich.table import Table

from benchmarks.added_programs import open_layouts, run_cases
from benchmarks.parts import keep
from benchmarks.timed_fits import with_epochs
from ensembles.votes import average
from solution.domain.collection import LAYOUT, NLP, XLA
from solution.domain.metrics import kendall_tau
from solution.models.base import RankerSettings
from solution.system.parquet import GRAPH
from solution.system.pictures import save_figure
from solution.system.report import Report
from solution.system.terminal import make_table
from solution.training.fold_scores import fit_without, held_out
from solution.training.plan import Plan
from solution.training.sites import Here

EPOCHS = 12  # of a full training
FEWER = (1, 3, 6)
CORES = 2
FOLDS = 5
NETS = {"our net": "layout_gnn_001", "net of costs": "layout_cost_net_001"}
BEST = {"our net": 1, "net of costs": 2}  # weights in the ensemble


@dataclass(frozen=True)
class Point:
    """Scores of a system at one time budget."""

    system: str
    seeds: int
    epochs: int
    minutes: float
    scores: list[float]  # of disjoint groups of seeds

    @property
    def score(self) -> float:
        return float(np.mean(self.scores))


def fit(
    site: Here, settings: RankerSettings, fold: int, seed: int, group: tuple[str, ...],
    epochs: int, report: Report,
) -> pl.DataFrame:  # fmt: skip
    """Return scores of the fold's programs, one row each, and the fit's core seconds."""
    started = time.process_time()
    shortened = with_epochs(settings, epochs)
    ranker = fit_without(shortened, site.plan, group, fold, seed, report)
    rows = [
        (*graph.key, ranker.predict(graph), graph.runtimes)
        for name in group
        for graph in held_out(site.plan, name, fold, settings)
    ]
    seconds = time.process_time() - started
    table = pl.DataFrame(rows, [*GRAPH, "scores", "runtimes"], orient="row")
    return table.with_columns(seconds=pl.lit(seconds / len(table)))


def train(
    name: str, plan: Plan, seed: int, epochs: int, folder: Path, workers: int
) -> pl.DataFrame:
    """Train all folds of an experiment with a seed, or read their file if it exists."""
    path = folder / f"{name}.{epochs}.{seed}.parquet"
    if not path.exists():
        cases = list(product(range(FOLDS), [seed], (XLA, NLP), [epochs]))
        found = pl.concat(table for _, table in run_cases(fit, name, plan, cases, workers))
        keep(found.sort(GRAPH), path)
    return pl.read_parquet(path)


def list_points(trained: dict[tuple[str, int, int], pl.DataFrame], seeds: int) -> list[Point]:
    """Return every system at every budget.

    Args:
        trained: by system, epochs and seed.
    """
    sizes = [2**power for power in range(seeds.bit_length()) if 2**power <= seeds]
    budgets = [(1, epochs) for epochs in FEWER] + [(size, EPOCHS) for size in sizes]
    points = []
    for system, (size, epochs) in product((*NETS, "best"), budgets):
        weights = BEST if system == "best" else {system: 1}
        count = 1 if epochs < EPOCHS else seeds // size
        groups = [range(size * number, size * (number + 1)) for number in range(count)]
        scored = [score(trained, weights, epochs, own) for own in groups]
        minutes = float(np.mean([taken for _, taken in scored]))
        points.append(Point(system, size, epochs, minutes, [value for value, _ in scored]))
    return points


def score(
    trained: dict[tuple[str, int, int], pl.DataFrame],
    weights: dict[str, int],
    epochs: int,
    seeds: range,
) -> tuple[float, float]:
    """Return the mean tau over the four collections of a merge of z-scores, and its minutes."""
    seconds, votes = 0.0, defaultdict[tuple[str, str], list[np.ndarray]](list)
    runtimes = {}
    for system, weight in weights.items():
        for seed in seeds:
            table = trained[system, epochs, seed]
            seconds += float(table["seconds"].sum())
            for collection, graph, scores, labels in table.drop("seconds").iter_rows():
                votes[collection, graph] += weight * [np.array(scores)]
                runtimes[collection, graph] = np.array(labels)
    taus = {key: kendall_tau(average(own, "z_score"), runtimes[key]) for key, own in votes.items()}
    means = [np.mean([tau for key, tau in taus.items() if key[0] == name]) for name in LAYOUT]
    return float(np.mean(means)), seconds / 60 / CORES


def tabulate(points: list[Point]) -> Table:
    """Return a table with a row per point."""
    table = make_table("Kendall's tau, mean of four collections, by what two cores are given")
    for name in ("System", "Seeds", "Epochs", "Minutes", "Tau", "lowest to highest"):
        table.add_column(name, justify="left" if name == "System" else "right")
    for point in points:
        several = len(point.scores) > 1
        spread = f"{min(point.scores):.3f} to {max(point.scores):.3f}" if several else ""
        row = (point.system, str(point.seeds), str(point.epochs), f"{point.minutes:.1f}")
        table.add_row(*row, f"{point.score:.4f}", spread)
    return table


def draw(points: list[Point]) -> Figure:
    """Draw tau against minutes, a line per system."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for system in dict.fromkeys(point.system for point in points):
        own = [point for point in points if point.system == system]
        values = np.array([point.score for point in own])
        ends = [[min(p.scores) for p in own], [max(p.scores) for p in own]]
        bars = np.abs(np.array(ends) - values)
        minutes = [point.minutes for point in own]
        axes.errorbar(minutes, values, yerr=bars, marker="o", ms=5, lw=1.4, capsize=3, label=system)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("minutes of two cores, all folds")
    axes.set_ylabel("Kendall's tau, mean of four collections, out of fold")
    axes.set_title("What more time buys")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def main(
    data: Annotated[Path, typer.Argument(help="Measured layout programs.")],
    out: Path = Path("build/budgets"),
    seeds: Annotated[int, typer.Option(help="At most.", min=1)] = 16,
    workers: int = 2,
    plot: Annotated[Path | None, typer.Option(help="Where the picture goes.")] = None,
) -> None:
    """Train what is missing, print every point, and draw them."""
    plan = open_layouts(data, out / "store", folds=FOLDS)
    asked = [(0, epochs) for epochs in FEWER] + [(seed, EPOCHS) for seed in range(seeds)]
    get = partial(train, plan=plan, folder=out, workers=workers)
    trained = {
        (system, epochs, seed): get(name, seed=seed, epochs=epochs)
        for (seed, epochs), (system, name) in product(asked, NETS.items())
    }
    points = list_points(trained, seeds)
    Console().print(tabulate(points))
    if plot is not None:
        save_figure(draw(points), plot)


if __name__ == "__main__":
    typer.run(main)
