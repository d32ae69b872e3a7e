"""Choose the configurations of a graph that a ranker learns from, and compute their labels.

Labels are runtimes turned into values that are comparable between graphs: ranks, relevance, or
runtimes scaled to 0 ... 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph


@dataclass(frozen=True)
class TrainingRows:
    """Configurations of a labelled graph that are chosen for training."""

    graph: Graph  # the graph with only the chosen configurations, and all duplicates of them
    runtimes: np.ndarray  # (distinct configs,) float64: mean runtime over duplicates


def share_rows(max_configs: int, max_rows: int, graphs: int) -> int:
    """Return the number of configurations per graph with which a training table has at most about
    `max_rows` rows: max(2, min(max_configs, max_rows / graphs))."""
    return max(2, min(max_configs, max_rows // max(1, graphs)))


def choose_all_rows(
    graphs: Sequence[Graph], max_configs: int, max_rows: int, seed: int
) -> list[TrainingRows]:
    """Choose configurations of each graph, at most `max_configs` and about `max_rows` in all."""
    limit = share_rows(max_configs, max_rows, len(graphs))
    return [choose_rows(graph, limit, seed) for graph in graphs]


def choose_rows(graph: Graph, limit: int | None, seed: int) -> TrainingRows:
    """Draw at most `limit` distinct configurations (None: all), with all their duplicates, because
    features count how frequent a layout is: a frequent one is likely fast. Raises ValueError if the
    graph has no labels."""
    if graph.runtimes is None:
        raise ValueError(f"{graph.name} has no labels to learn from")
    runtimes = graph.distinct.mean(graph.runtimes)
    if limit is None or len(runtimes) <= limit:
        # return the graph itself, not a copy, because results are cached per object
        return TrainingRows(graph, runtimes)
    chosen = np.sort(np.random.default_rng(seed).choice(len(runtimes), limit, replace=False))
    copies = np.flatnonzero(np.isin(graph.distinct.inverse, chosen))
    return TrainingRows(graph.select(copies), runtimes[chosen])


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Return ranks (configs,), near 0 (fastest) to near 1 (slowest); ties share their mean."""
    # imported here, because it is slow to import and prediction does not need it
    from scipy.stats import rankdata

    return (rankdata(runtimes) - 0.5) / len(runtimes)


def scaled_runtime(runtimes: np.ndarray) -> np.ndarray:
    """Return runtimes (configs,) scaled linearly: fastest 0, slowest 1; all 0 if they are equal."""
    spread = runtimes.max() - runtimes.min()
    return (runtimes - runtimes.min()) / (spread if spread > 0 else 1.0)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Return relevance grades (configs,) int32 for lambdarank, from 0 (slowest) to levels - 1
    (fastest), each about equally frequent."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
