"""Out-of-fold scores of settings on one collection, for the benchmarks.

The folds and inner splits are those of `fastslow run`, so the numbers are the same; nothing is
written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from solution.collection import collection
from solution.data.folders import find_files
from solution.data.folds import split_inner
from solution.data.plan import IS_LABELLED, Plan, make_plan
from solution.data.preparing import prepare_store
from solution.features.preparation import Preparation
from solution.graph import Graph
from solution.metrics import Mean, bootstrap_mean, kendall_tau, top_k_score
from solution.models.base import RankerSettings
from solution.out_of_fold import INNER_SHARE
from solution.progress import track

SEEDS = (0, 1, 2)
Metric = Callable[[np.ndarray, np.ndarray], float]


def top_1_slowdown(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """The predicted best's runtime over the best's, less 1: what choosing by the model costs."""
    return 1 - top_k_score(scores, runtimes, 1)


METRICS: dict[str, dict[str, Metric]] = {
    "tile": {"top-5 score": top_k_score, "top-1 slowdown": top_1_slowdown, "tau": kendall_tau},
    "layout": {"tau": kendall_tau},
}


@dataclass(frozen=True)
class Scores:
    """Every metric of every graph and seed."""

    values: dict[str, np.ndarray]  # (seeds, graphs) each
    groups: list[str]  # (graphs,)

    def mean(self, metric: str) -> Mean:
        """Over graphs, of the mean over seeds, with an interval over graphs."""
        return bootstrap_mean(self.values[metric].mean(axis=0))

    def by_seed(self, metric: str) -> np.ndarray:
        return self.values[metric].mean(axis=1)

    def describe(self, metric: str) -> str:
        mean = self.mean(metric)
        seeds = " ".join(f"{value:.4f}" for value in self.by_seed(metric))
        return f"{mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f}), seeds {seeds}"


def open_plan(data: Path, store: Path) -> Plan:
    """Prepare `data` into `store`, where that is not done, and divide it into five folds."""
    return make_plan(prepare_store(find_files(data), store, Preparation()), "architecture", 5)


def score_out_of_fold(
    settings: RankerSettings, plan: Plan, name: str, seeds: Sequence[int] = SEEDS
) -> Scores:
    """Fit without each fold and score it, once for each seed."""
    rows = plan.rows(name, IS_LABELLED)
    metrics = METRICS[collection(name).kind]
    values = {metric: np.zeros((len(seeds), len(rows))) for metric in metrics}
    folds = plan.folds(name)
    pairs = [(place, seed, fold) for place, seed in enumerate(seeds) for fold in folds]
    with track(pairs, f"{type(settings).__name__} {name}") as todo:
        for place, seed, fold in todo:
            ranker = settings.build(seed).fit(*_training(plan, rows, fold, seed))
            held_out = np.flatnonzero(rows["fold"].to_numpy() == fold)
            for position, graph in zip(held_out, plan.load(rows[held_out]), strict=True):
                scores, runtimes = ranker.predict(graph), _runtimes(graph)
                for metric, function in metrics.items():
                    values[metric][place, position] = function(scores, runtimes)
    return Scores(values, rows["group"].to_list())


def _training(
    plan: Plan, rows: pl.DataFrame, fold: int, seed: int
) -> tuple[Sequence[Graph], Sequence[Graph]]:
    training = rows.filter(pl.col("fold") != fold)
    mask = split_inner(training["group"].to_list(), INNER_SHARE, seed=1000 * seed + fold)
    return plan.load(training.filter(~mask)), plan.load(training.filter(mask))


def _runtimes(graph: Graph) -> np.ndarray:
    if graph.runtimes is None:
        raise ValueError(f"{graph.name} has no labels")
    return graph.runtimes
