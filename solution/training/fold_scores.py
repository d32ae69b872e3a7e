"""Score settings on held-out folds, without writing anything.

The folds, the inner splits and the configurations are those of `fastslow run`, so the scores are
the same where `collections` are those that an experiment learns from.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from solution.domain.evaluated_configs import choose_configs
from solution.domain.graph import Graph
from solution.domain.metrics import score_ranking
from solution.models.base import Ranker, RankerSettings
from solution.store.lazy_graphs import LazyGraphs
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.training.fit import split_training
from solution.training.plan import Plan

Measure = Callable[[np.ndarray, np.ndarray], float]  # of scores and runtimes


class DivergedError(InputError):
    """Scores are NaN or infinite: what was fitted is no model."""


def fit_without(
    settings: RankerSettings,
    plan: Plan,
    collections: Sequence[str],
    fold: int,
    seed: int,
    report: Report = silent,
) -> Ranker:
    """A ranker that has learned from all folds of the collections but one."""
    fit_on, validate_on = split_training(plan, collections, fold, seed)
    return settings.build(seed).fit(
        plan.load(fit_on, settings), plan.load(validate_on, settings), report
    )


def held_out(
    plan: Plan, collection: str, fold: int, settings: RankerSettings | None = None
) -> LazyGraphs:
    """The labelled graphs of the fold, as a ranker of the settings needs them."""
    return plan.load(plan.held_out(collection, fold), settings)


def score_graphs(
    ranker: Ranker, graphs: Sequence[Graph], measures: Iterable[Measure] = ()
) -> np.ndarray:
    """The collection's score of each labelled graph, then every other measure.

    Returns:
        (graphs, 1 + measures)

    Raises:
        DivergedError: a score is NaN or infinite, and would be ranked by its place in the list.
    """
    rows, more = [], tuple(measures)
    for graph in graphs:
        chosen = graph.select(choose_configs(graph.key, graph.num_configs))
        scores, runtimes = ranker.predict(replace(chosen, runtimes=None)), chosen.runtimes
        if runtimes is None:
            raise ValueError(f"{graph.name} has no labels to score against")
        if not np.isfinite(scores).all():
            raise DivergedError(f"{graph.name}: scores of it are NaN or infinite.")
        own = score_ranking(graph.collection.name, scores, runtimes)
        rows.append([own, *(measure(scores, runtimes) for measure in more)])
    return np.array(rows)
