"""Measure how much collected programs improve rankers: out of fold, with and without them.

    python -m benchmarks.added_programs CPUGRAPHS COLLECTED --out build/added
    python -m benchmarks.added_programs solution/data/sample MINE --scored new

Either the old programs are scored, or the new ones, to see what collecting programs of a kind
gains for others of that kind. The folds divide the scored programs only. A program whose
architecture is held out is left out with it; all others are training programs and never scored. The
difference is paired by program; its interval is drawn over programs (which stand in both searches),
not over graphs.
"""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from ensembles.statistics import compare
from solution.data.folders import find_files
from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.store.graph_file import LazyGraphs
from solution.store.preparing import prepare_store
from solution.system.progress import bars
from solution.system.report import Report
from solution.system.terminal import output
from solution.training.executors.base import Task
from solution.training.executors.local import LocalExecutor
from solution.training.fold_scores import fit_without, score_graphs
from solution.training.folds import Scheme, assign_folds
from solution.training.plan import IS_LABELLED, Plan, make_plan
from solution.training.sites import Here
from solution.training.watch import ProgressBars

ADDED = "added_"  # prefix of a collected program's name
NEVER_HELD_OUT = 99
OLD, NEW = "old", "new"
WITH, WITHOUT = "with", "without"


def merge(old: Path, more: Path, folder: Path) -> Path:
    """Merge both folders' labelled layout graphs into one; collected ones get new names."""
    for source, prefix in ((old, ""), (more, ADDED)):
        for file in find_files(source):
            if file.collection.name in LAYOUT and file.split != "test":
                place = folder / "npz" / file.collection.folder / file.split
                place.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.path, place / f"{prefix}{file.path.name}")
    return folder


def open_layouts(data: Path, store: Path, scheme: Scheme = "architecture", folds: int = 5) -> Plan:
    """Prepare the folder's whole layout graphs into `store`, and divide them into folds."""
    files = [file for file in find_files(data) if file.collection.name in LAYOUT]
    return make_plan(prepare_store(files, store, Preparation(None)), scheme, folds)


def divide(store_folder: Path, data: Path, scored: str, folds: int) -> Plan:
    """Return folds of the scored programs; other programs of a held-out architecture go with
    them."""
    plan = open_layouts(data, store_folder, folds=folds)
    every = plan.graphs
    own = every.filter(_is_scored(scored)).drop("group", "fold")
    drawn = assign_folds(own, "architecture", folds, seed=0).select("group", "fold").unique()
    graphs = every.drop("fold").join(drawn, on="group", how="left", maintain_order="left")
    return Plan(graphs.with_columns(pl.col("fold").fill_null(NEVER_HELD_OUT)), plan.store)


def _is_scored(scored: str) -> pl.Expr:
    is_added = pl.col("graph").str.starts_with(ADDED)
    return is_added if scored == NEW else ~is_added


def score(
    site: Here, settings: RankerSettings, fold: int, seed: int, group: tuple[str, ...],
    with_added: bool, scored: str, report: Report,
) -> list[tuple[str, str, float]]:  # fmt: skip
    """Return collection, graph and score of the scored programs of the fold."""
    plan, own = site.plan, _is_scored(scored)
    if not with_added:  # the scored graphs stay, because they are not trained on
        old = ~pl.col("graph").str.starts_with(ADDED)
        plan = Plan(plan.graphs.filter(old | (own & (pl.col("fold") == fold))), plan.store)
    ranker = fit_without(settings, plan, group, fold, seed, report)
    found = []
    for name in group:
        rows = plan.held_out(name, fold).filter(own)
        graphs: LazyGraphs = plan.load(rows, settings)
        scores = score_graphs(ranker, graphs)[:, 0]
        found += [(name, g, float(s)) for g, s in zip(rows["graph"], scores, strict=True)]
    return found


def run_cases(
    work: Callable[..., Any], name: str, plan: Plan, cases: Sequence[tuple], workers: int
) -> list[tuple[tuple, Any]]:
    """Yield each case and the result of `work`, in the order in which they finish.

    Args:
        work: called with the plan's site, the experiment's settings, a case and a report.
        name: of the experiment.
        cases: (fold, seed, ...).
    """
    settings = find_experiment(name).ranker
    tasks = [Task(f"{name} fold {case[0]} seed {case[1]}", (settings, *case)) for case in cases]
    found: list[tuple[tuple, Any]] = []

    def keep(number: int, result: Any) -> None:
        found.append((cases[number], result))

    with bars() as progress:
        watch = ProgressBars(progress, len(tasks), name)
        site = Here(plan.graphs, plan.store)
        LocalExecutor(workers).run(partial(work, site), tasks, watch, keep)
    return found


def main(
    old: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    more: Annotated[Path, typer.Argument(help="What was collected.")],
    out: Path = Path("build/added"),
    experiment: Annotated[list[str], typer.Option()] = ["layout_gnn_001", "layout_lightgbm_001"],  # noqa: B006
    scored: Annotated[str, typer.Option(help="old or new")] = OLD,
    folds: int = 5,
    seeds: int = 3,
    workers: int = 1,
) -> None:
    """Fit all with and without, and print the difference for each experiment and collection."""
    shutil.rmtree(out / "data", ignore_errors=True)
    plan = divide(out / "store", merge(old, more, out / "data"), scored, folds)
    counts = plan.graphs.filter(IS_LABELLED).group_by("collection", maintain_order=True).agg(
        pl.len().alias("graphs"), pl.col("graph").str.starts_with(ADDED).sum().alias("added")
    )  # fmt: skip
    output.print(counts)
    for name in experiment:
        cases = list(product(range(folds), range(seeds), (XLA, NLP), (False, True), (scored,)))
        found = run_cases(score, name, plan, cases, workers)
        scores = list_scores(found)
        scores.write_parquet(out / f"{name}.parquet")
        show(name, plan, scores)


def list_scores(found: list[tuple[tuple, Any]]) -> pl.DataFrame:
    """Return collection, graph, score, seed, added; from cases (fold, seed, collections, added,
    ...)."""
    rows = [(*row, case[1], case[3]) for case, own in found for row in own]
    return pl.DataFrame(rows, ["collection", "graph", "score", "seed", "added"], orient="row")


def show(name: str, plan: Plan, scores: pl.DataFrame) -> None:
    """Print means, and the paired difference with its interval over programs' structures."""
    groups = plan.graphs.filter(IS_LABELLED).select("collection", "graph", "group")
    scores = scores.join(groups, on=["collection", "graph"])
    member = pl.when("added").then(pl.lit(WITH)).otherwise(pl.lit(WITHOUT)).alias("member")
    table = scores.group_by("collection", "graph", "group", member).agg(pl.col("score").mean())
    for row in compare(table, WITH, WITHOUT).iter_rows(named=True):
        own = table.filter(pl.col("collection") == row["collection"], pl.col("member") == WITHOUT)
        without = f"{own['score'].mean():.3f} without, " if len(own) else ""
        output.print(
            f"{name} {row['collection']}: {without}{row['difference']:+.3f} "
            f"({row['low']:+.3f} to {row['high']:+.3f}), P above 0 {row['probability']:.2f}"
        )


if __name__ == "__main__":
    typer.run(main)
