"""The LightGBM study: a kernel's runtime from its mean node features and its tile.

    140 node features, mean over the nodes ─┬─▶ LightGBM, least squares, lasso or ridge ─▶ runtime
    24 numbers of the tile ─────────────────┘

A row is one (kernel, tile), each learned by itself: nothing is compared. The mean is the same for
all tiles of a kernel, so a linear model has one order of tiles for all kernels; trees may combine.

Source: a student project at Harvard on TpuGraphs with a LightGBM performance model. It reports a
top-5 slowdown of 3.7% for tiles, against 9.1% of the baseline. Where it is silent (settings,
opcodes): the trees of our pointwise ranker, penalties by grid search, and no opcodes. The runtimes
are over the kernel's normaliser, as Kaggle scores them; unused dimensions are -1, as everywhere
here.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.models.linear import LassoSettings, LinearRanker, OrdinarySettings, RidgeSettings
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings


def _mean_rows(graph: Graph) -> np.ndarray:
    """Rows (distinct configs, 164) float32: the kernel's mean node features, then the tile."""
    means = graph.node_features.mean(axis=0, dtype=np.float64)
    tiles = graph.tiles[graph.distinct.first]
    rows = np.concatenate([np.tile(means, (len(tiles), 1)), tiles], axis=1)
    return rows.astype(np.float32)


mean_rows = PerGraph(_mean_rows)


@dataclass(frozen=True)
class StudyTreeSettings(PointwiseSettings):
    """Settings of StudyTreeRanker."""

    def build(self, seed: int) -> "StudyTreeRanker":
        """Make a ranker that is not fitted yet."""
        return StudyTreeRanker(self, seed)


class StudyTreeRanker(PointwiseRanker):
    """Boosted trees that predict the runtime."""

    on_feature_table = False

    def rows_of(self, graph: Graph) -> np.ndarray:
        return mean_rows(graph)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return runtimes


@dataclass(frozen=True)
class StudyOrdinarySettings(OrdinarySettings):
    """Ordinary least squares."""

    def build(self, seed: int) -> "StudyLinearRanker":
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyRidgeSettings(RidgeSettings):
    """Ridge, its penalty by grid search."""

    def build(self, seed: int) -> "StudyLinearRanker":
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyLassoSettings(LassoSettings):
    """Lasso, its penalty by grid search."""

    def build(self, seed: int) -> "StudyLinearRanker":
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)


class StudyLinearRanker(LinearRanker):
    """A linear model that predicts the runtime."""

    on_feature_table = False

    def rows_of(self, graph: Graph) -> np.ndarray:
        return mean_rows(graph)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return runtimes
