"""Estimate the learnable limit: rankers trained with and without half of a program's own labels.

    python -m benchmarks.own_labels CPUGRAPHS --workers 2

The folds by architecture of `fastslow run`. Each program's configurations are divided in two; one
half is ranked by a ranker trained on the programs of the other folds, and by one also trained
on the other half of this program (and of the fold's other programs). The second is not a valid
result, because these labels are not available in practice: it shows how well a known program could
be ranked.
"""

from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.added_programs import list_scores, open_layouts, run_cases, show
from solution.domain.collection import NLP, XLA
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.models.base import RankerSettings
from solution.system.report import Report
from solution.training.fit import split_training
from solution.training.sites import Here

Found = list[tuple[str, str, float]]  # collection, graph, tau
RANKERS = ("layout_gnn_001", "layout_cost_net_001")


def score(
    site: Here, settings: RankerSettings, fold: int, seed: int, group: tuple[str, ...],
    with_own: bool, report: Report,
) -> Found:  # fmt: skip
    """Return the scores of the second half of each of the fold's programs."""
    plan = site.plan
    fit_on, validate_on = split_training(plan, group, fold, seed)
    asked = [graph for name in group for graph in plan.load(plan.held_out(name, fold), settings)]
    graphs = [*plan.load(fit_on, settings)]
    if with_own:
        graphs += [graph.select(np.arange(0, graph.num_configs, 2)) for graph in asked]
    ranker = settings.build(seed).fit(graphs, plan.load(validate_on, settings), report)
    return [(*graph.key, _score(ranker.predict(graph), graph)) for graph in asked]


def _score(scores: np.ndarray, graph: Graph) -> float:
    assert graph.runtimes is not None  # graphs of a fold have labels
    return kendall_tau(scores[1::2], graph.runtimes[1::2])


def main(
    data: Annotated[Path, typer.Argument(help="Measured layout programs.")],
    out: Path = Path("build/own_labels"),
    experiment: Annotated[list[str], typer.Option()] = list(RANKERS),  # noqa: B006, B008
    folds: int = 5,
    seeds: int = 1,
    workers: int = 1,
) -> None:
    """Fit all with and without, and print the difference for each experiment and collection."""
    plan = open_layouts(data, out / "store", folds=folds)
    for name in experiment:
        cases = list(product(range(folds), range(seeds), (XLA, NLP), (False, True)))
        show(name, plan, list_scores(run_cases(score, name, plan, cases, workers)))


if __name__ == "__main__":
    typer.run(main)
