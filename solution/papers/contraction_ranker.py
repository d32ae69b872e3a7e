"""Trees on the layout table, with columns about which contracted dimensions of dots are
contiguous."""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.features import contractions
from solution.features.column import Feature
from solution.features.table import distinct_rows
from solution.models.base import check_no_options
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings


@dataclass(frozen=True)
class ContractionSettings(PointwiseSettings):
    """Settings of ContractionRanker."""

    def build(self, seed: int) -> "ContractionRanker":
        """Return an unfitted ranker."""
        return ContractionRanker(self, seed)


class ContractionRanker(PointwiseRanker):
    """Regress the normalised rank, on layouts only. Scores depend on the list."""

    def rows_of(self, graph: Graph) -> np.ndarray:
        check_no_options(graph)
        return np.concatenate([distinct_rows(graph), contractions.contraction_rows(graph)], axis=1)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        return (*super().features_of(graph), *contractions.FEATURES)
