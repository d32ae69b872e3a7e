"""Score settings on held-out folds, without writing anything.

The folds, the inner splits and the configurations are those of `fastslow run`, so the scores are
the same.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import polars as pl

from solution.data.folds import split_inner
from solution.data.graphs import LazyGraphs
from solution.data.plan import IS_LABELLED, Plan
from solution.data.questions import choose_configs
from solution.graph import Graph
from solution.metrics import score_ranking
from solution.models.base import Ranker, RankerSettings, Report, silent
from solution.out_of_fold import INNER_SHARE

Measure = Callable[[np.ndarray, np.ndarray], float]  # of scores and runtimes


def fit_without(
    settings: RankerSettings,
    plan: Plan,
    collection: str,
    fold: int,
    seed: int,
    report: Report = silent,
) -> Ranker:
    """A ranker that has learned from all folds of the collection but one."""
    training = plan.rows(collection, IS_LABELLED, pl.col("fold") != fold)
    mask = split_inner(training["group"].to_list(), INNER_SHARE, seed=1000 * seed + fold)
    fit_on, validate_on = plan.load(training.filter(~mask)), plan.load(training.filter(mask))
    return settings.build(seed).fit(fit_on, validate_on, report)


def held_out(plan: Plan, collection: str, fold: int) -> LazyGraphs:
    """The labelled graphs of the fold."""
    return plan.load(plan.rows(collection, IS_LABELLED, pl.col("fold") == fold))


def score_graphs(
    ranker: Ranker, graphs: Sequence[Graph], measures: Iterable[Measure] = ()
) -> np.ndarray:
    """The collection's score of each labelled graph, then every other measure.

    Returns:
        (graphs, 1 + measures)
    """
    rows, more = [], tuple(measures)
    for graph in graphs:
        if graph.runtimes is None:
            raise ValueError(f"{graph.name} has no labels to score against")
        configs = choose_configs(graph.key, graph.num_configs)
        scores, runtimes = ranker.predict(graph.select(configs)), graph.runtimes[configs]
        own = score_ranking(graph.collection.name, scores, runtimes)
        rows.append([own, *(measure(scores, runtimes) for measure in more)])
    return np.array(rows)
