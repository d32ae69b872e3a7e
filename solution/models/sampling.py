"""Choose the configurations of a graph that a ranker learns from.

Turn runtimes into labels that mean the same in every graph: ranks, relevance, share of the
range.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph


@dataclass(frozen=True)
class TrainingRows:
    """The distinct configurations of a labelled graph."""

    graph: Graph  # with these distinct configurations, in order
    runtimes: np.ndarray  # (distinct,) float64: the mean over identical configurations


def share_rows(max_configs: int, max_rows: int, graphs: int) -> int:
    """Return how many distinct configurations each of `graphs` graphs may add to a table of
    `max_rows`."""
    return max(2, min(max_configs, max_rows // max(1, graphs)))


def choose_all_rows(
    graphs: Sequence[Graph], max_configs: int, max_rows: int, seed: int
) -> list[TrainingRows]:
    """Choose the rows of each graph, about `max_rows` at most in total."""
    limit = share_rows(max_configs, max_rows, len(graphs))
    return [choose_rows(graph, limit, seed) for graph in graphs]


def choose_rows(graph: Graph, limit: int | None, seed: int) -> TrainingRows:
    """Draw at most `limit` distinct configurations, with all duplicates of each; None takes all.

    Duplicates stay because features count them: a layout that is frequent among the candidates is
    likely fast.

    Raises ValueError if the graph has no labels.
    """
    if graph.runtimes is None:
        raise ValueError(f"{graph.name} has no labels to learn from")
    runtimes = graph.distinct.mean(graph.runtimes)
    if limit is None or len(runtimes) <= limit:
        return TrainingRows(graph, runtimes)  # the same object, so that cached results are found
    chosen = np.sort(np.random.default_rng(seed).choice(len(runtimes), limit, replace=False))
    copies = np.flatnonzero(np.isin(graph.distinct.inverse, chosen))
    return TrainingRows(graph.select(copies), runtimes[chosen])


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Return ranks (configs,) from 0, fastest, to 1; ties share their mean rank."""
    from scipy.stats import rankdata  # slow to import, and prediction does not need it

    return (rankdata(runtimes) - 0.5) / len(runtimes)


def scaled_runtime(runtimes: np.ndarray) -> np.ndarray:
    """Return runtimes (configs,) scaled to 0, fastest, and 1, slowest; 0 if all are equal."""
    spread = runtimes.max() - runtimes.min()
    return (runtimes - runtimes.min()) / (spread if spread > 0 else 1.0)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Return relevance (configs,) int32: levels - 1 for the fastest, 0 for the slowest."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
