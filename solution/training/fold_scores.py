"""Score settings on held-out folds without writing anything.

Folds, inner validation graphs and configurations are chosen as in `fastslow run`. So the scores
equal the scores of a run in which the experiment learns from the same `collections`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.domain.metrics import score_ranking
from solution.models.base import Ranker, RankerSettings
from solution.store.graph_file import LazyGraphs
from solution.system.report import Report, silent
from solution.training.fit import DivergedError, split_training
from solution.training.plan import Plan

# returns a number from the scores (configs,) and the runtimes (configs,) of a graph
Measure = Callable[[np.ndarray, np.ndarray], float]


def fit_without(
    settings: RankerSettings,
    plan: Plan,
    collections: Sequence[str],
    fold: int,
    seed: int,
    report: Report = silent,
) -> Ranker:
    """Return a ranker fitted on all folds of the collections except `fold`."""
    fit_on, validate_on = split_training(plan, collections, fold, seed)
    return settings.build(seed).fit(
        plan.load(fit_on, settings), plan.load(validate_on, settings), report
    )


def held_out(
    plan: Plan, collection: str, fold: int, settings: RankerSettings | None = None
) -> LazyGraphs:
    """Return the fold's labelled graphs, prepared for the `settings` (None: as stored)."""
    return plan.load(plan.held_out(collection, fold), settings)


def score_graphs(
    ranker: Ranker, graphs: Sequence[Graph], measures: Iterable[Measure] = ()
) -> np.ndarray:
    """Return for each labelled graph its score by its collection's metric, then the values of
    `measures`: (graphs, 1 + measures). Raises DivergedError if a score is not finite."""
    rows, more = [], tuple(measures)
    for graph in graphs:
        chosen = graph.select(choose_configs(graph.key, graph.num_configs))
        scores, runtimes = ranker.predict(replace(chosen, runtimes=None)), chosen.runtimes
        if runtimes is None:
            raise ValueError(f"{graph.name} has no labels to score against")
        if not np.isfinite(scores).all():
            raise DivergedError(f"{graph.name}: scores of it are NaN or infinite.")
        score = score_ranking(graph.collection.name, scores, runtimes)
        rows.append([score, *(measure(scores, runtimes) for measure in more)])
    return np.array(rows)
