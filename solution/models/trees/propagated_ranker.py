"""Trees on the layout table and on what the compiler would make of each configuration."""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.features.column import Feature
from solution.features.propagation import copy_table
from solution.features.pruning import keep_neighbourhood
from solution.features.table import distinct_rows
from solution.models.base import check_no_options
from solution.models.trees.lightgbm_ranker import LightGBMRanker, LightGBMSettings


@dataclass(frozen=True)
class PropagatedTreeSettings(LightGBMSettings):
    """Settings of PropagatedTrees."""

    @property
    def needed_hops(self) -> int | None:
        """The whole graph: what is asked of one tensor reaches as far as it is handed on."""
        return None

    def build(self, seed: int) -> "PropagatedTrees":
        """Make a ranker that is not fitted yet."""
        return PropagatedTrees(self, seed)


class PropagatedTrees(LightGBMRanker):
    """Lambdarank of layouts, with propagated copies as columns. Scores depend on the list."""

    reads_program_order = True

    def rows_of(self, graph: Graph) -> np.ndarray:
        check_no_options(graph)
        asked = distinct_rows(keep_neighbourhood(graph, 1))
        return np.concatenate([asked, copy_table.propagated_rows(graph)], axis=1)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        return (*super().features_of(graph), *copy_table.FEATURES)
