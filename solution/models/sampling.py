"""Which configurations of a graph a ranker learns from."""

from dataclasses import dataclass

import numpy as np

from solution.data.duplicates import deduplicate
from solution.data.graphs import PerGraph
from solution.graph import Graph

deduplicated = PerGraph(lambda graph: deduplicate(graph.configs))


@dataclass(frozen=True)
class TrainingRows:
    """Distinct configurations of a labelled graph."""

    graph: Graph  # with only these configurations
    runtimes: np.ndarray  # (rows,) float64: the mean over identical configurations


def choose_rows(graph: Graph, limit: int, seed: int) -> TrainingRows:
    """Deduplicate, then draw at most `limit` distinct configurations.

    Raises ValueError where the graph has no labels.
    """
    if graph.runtimes is None:
        raise ValueError(f"{graph.name} has no labels to learn from")
    distinct = deduplicated(graph)
    runtimes = distinct.mean(graph.runtimes)
    chosen = np.arange(len(runtimes))
    if len(chosen) > limit:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, limit, replace=False))
    if len(chosen) == graph.num_configs:
        return TrainingRows(graph, runtimes)  # the same object, so what is kept for it is found
    return TrainingRows(graph.select(distinct.first[chosen]), runtimes[chosen])
