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
    """Return how many distinct configurations each graph may add to a training table. It is max(2,
    min(max_configs, max_rows / graphs)), where `graphs` is the number of graphs."""
    return max(2, min(max_configs, max_rows // max(1, graphs)))


def choose_all_rows(
    graphs: Sequence[Graph], max_configs: int, max_rows: int, seed: int
) -> list[TrainingRows]:
    """Choose configurations to train on from each graph: at most `max_configs` distinct ones per
    graph, and roughly `max_rows` over all graphs (but at least two per graph)."""
    limit = share_rows(max_configs, max_rows, len(graphs))
    return [choose_rows(graph, limit, seed) for graph in graphs]


def choose_rows(graph: Graph, limit: int | None, seed: int) -> TrainingRows:
    """Draw at most `limit` distinct configurations of a graph, with all duplicates of each. None
    takes all configurations. Duplicates stay because features count them: a layout that is frequent
    among the candidates is likely fast. Raises ValueError if the graph has no labels."""
    if graph.runtimes is None:
        raise ValueError(f"{graph.name} has no labels to learn from")
    runtimes = graph.distinct.mean(graph.runtimes)
    if limit is None or len(runtimes) <= limit:
        # return the same graph object, because results are cached per object
        return TrainingRows(graph, runtimes)
    chosen = np.sort(np.random.default_rng(seed).choice(len(runtimes), limit, replace=False))
    copies = np.flatnonzero(np.isin(graph.distinct.inverse, chosen))
    return TrainingRows(graph.select(copies), runtimes[chosen])


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Return ranks (configs,), from near 0 (fastest) to near 1 (slowest); ties share their mean
    rank."""
    # imported here, because it is slow to import and prediction does not need it
    from scipy.stats import rankdata

    return (rankdata(runtimes) - 0.5) / len(runtimes)


def scaled_runtime(runtimes: np.ndarray) -> np.ndarray:
    """Return runtimes (configs,) scaled linearly: fastest 0, slowest 1; all 0 if they are equal."""
    spread = runtimes.max() - runtimes.min()
    return (runtimes - runtimes.min()) / (spread if spread > 0 else 1.0)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Return relevance grades (configs,) int32 for lambdarank: levels - 1 the fastest, 0 the
    slowest. Each grade has about equally many configurations."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
