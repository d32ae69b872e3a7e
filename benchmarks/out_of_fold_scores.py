"""Compute out-of-fold scores of settings on one collection, for the benchmarks.

The folds and inner splits are those of `fastslow run`, so the numbers are the same; nothing is
written.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.bootstrap import bootstrap_mean
from solution.data.folders import find_files
from solution.domain.collection import collection
from solution.domain.metrics import Mean, kendall_tau, top_k_slowdown
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.processes import count_cores, open_pool
from solution.system.progress import track
from solution.training.fold_scores import Measure, fit_without, held_out, score_graphs
from solution.training.plan import IS_LABELLED, Plan, make_plan

SEEDS = (0, 1, 2)


top_1_slowdown = partial(top_k_slowdown, k=1)
MEASURES: dict[str, dict[str, Measure]] = {  # in addition to the collection's own score
    "tile": {"top-1 slowdown": top_1_slowdown, "tau": kendall_tau},
    "layout": {},
}


def metrics(kind: str) -> list[str]:
    """Return the names of the measured columns."""
    return ["top-5 score" if kind == "tile" else "tau", *MEASURES[kind]]


@dataclass(frozen=True)
class Scores:
    """Every metric for every graph and seed."""

    values: dict[str, np.ndarray]  # by metric, (seeds, graphs)

    def mean(self, metric: str) -> Mean:
        """Return the mean over graphs of the mean over seeds, with an interval over graphs."""
        return bootstrap_mean(self.values[metric].mean(axis=0))

    def by_seed(self, metric: str) -> np.ndarray:
        return self.values[metric].mean(axis=1)


def open_plan(data: Path, store: Path) -> Plan:
    """Prepare `data` into `store`, if necessary, and divide it into five folds."""
    return make_plan(prepare_store(find_files(data), store, Preparation()), "architecture", 5)


def score_out_of_fold(
    settings: RankerSettings, plan: Plan, name: str, seeds: Sequence[int] = SEEDS
) -> Scores:
    """Fit without each fold and score it, once for each seed; each fit runs on one core."""
    kind = collection(name).kind
    folds = plan.rows(name, IS_LABELLED)["fold"].to_numpy()
    values = np.zeros((len(seeds), len(folds), 1 + len(MEASURES[kind])))
    pairs = [(place, seed, fold) for place, seed in enumerate(seeds) for fold in plan.folds(name)]
    title = f"{type(settings).__name__} {name}"
    with open_pool(count_cores(), _begin, plan.graphs, plan.store) as pool:
        done = [pool.submit(_score_fold, settings, name, fold, seed) for _, seed, fold in pairs]
        with track(pairs, title) as todo:
            for (place, _, fold), scored in zip(todo, done, strict=True):
                values[place, folds == fold] = scored.result()
    return Scores({metric: values[..., k] for k, metric in enumerate(metrics(kind))})


_plan: Plan  # of a worker process


def _begin(graphs: pl.DataFrame, store: Store) -> None:
    global _plan
    os.environ["OMP_NUM_THREADS"] = "1"
    _plan = Plan(graphs, store)


def _score_fold(settings: RankerSettings, name: str, fold: int, seed: int) -> np.ndarray:
    ranker = fit_without(settings, _plan, (name,), fold, seed)
    measures = MEASURES[collection(name).kind].values()
    return score_graphs(ranker, held_out(_plan, name, fold), measures)
