"""Score rankers on families of programs that were held out, and simple rules without learning.

    python -m benchmarks.held_out_families CPUGRAPHS COLLECTED --workers 2

Rankers are trained on both folders together. The folds keep all programs of a family together, in
both folders (solution.domain.families). So every program is ranked by models that have seen no
program of its family, but others timed on its machine. The rows *copied bytes* to *arguments free*
learn nothing (benchmarks.unlike_programs). Kendall's tau, means with 95% intervals over programs, a
table for each folder.
"""

import shutil
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from benchmarks.added_programs import ADDED, merge, open_layouts, run_cases
from benchmarks.unlike_programs import Scores, count_known, tabulate
from ensembles.votes import average
from solution.domain.collection import NLP, XLA
from solution.models.base import RankerSettings
from solution.system.report import Report
from solution.system.terminal import output
from solution.training.fold_scores import fit_without
from solution.training.plan import Plan
from solution.training.sites import Here

RANKERS = ("layout_gnn_001", "layout_cost_net_001")
Predicted = list[tuple[tuple[str, str], np.ndarray]]  # collection and graph, scores (configs,)


def predict(
    site: Here, settings: RankerSettings, fold: int, seed: int, group: tuple[str, ...],
    report: Report,
) -> Predicted:  # fmt: skip
    """Return scores of the fold's programs by a ranker trained on the other folds."""
    plan = site.plan
    ranker = fit_without(settings, plan, group, fold, seed, report)
    graphs = [graph for name in group for graph in plan.load(plan.held_out(name, fold), settings)]
    return [(graph.key, ranker.predict(graph)) for graph in graphs]


def rank(name: str, plan: Plan, folds: int, seeds: int, workers: int) -> Scores:
    """Return out-of-fold scores, averaged over seeds."""
    cases = list(product(range(folds), range(seeds), (XLA, NLP)))
    found: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for _, predicted in run_cases(predict, name, plan, cases, workers):
        for key, scores in predicted:
            found[key].append(scores)
    return {key: average(scores, "z_score") for key, scores in found.items()}


def main(
    old: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    more: Annotated[Path, typer.Argument(help="What was collected.")],
    out: Path = Path("build/families"),
    experiment: Annotated[list[str], typer.Option()] = list(RANKERS),  # noqa: B006, B008
    folds: int = 5,
    seeds: int = 1,
    workers: int = 1,
) -> None:
    """Fit all folds, and print a table for each folder."""
    shutil.rmtree(out / "data", ignore_errors=True)
    plan = open_layouts(merge(old, more, out / "data"), out / "store", "family", folds)
    ranked = {name: rank(name, plan, folds, seeds, workers) for name in experiment}
    everything = [
        graph
        for name in plan.graphs["collection"].unique(maintain_order=True)
        for graph in plan.load(plan.rows(name))
    ]
    for folder, is_added in ((old, False), (more, True)):
        graphs = [graph for graph in everything if graph.name.startswith(ADDED) == is_added]
        output.print(f"{folder.name}:")
        with pl.Config(tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=40):
            output.print(tabulate(count_known(graphs) | ranked, graphs))


if __name__ == "__main__":
    typer.run(main)
