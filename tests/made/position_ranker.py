"""A ranker that breaks the contract: a score depends on the batch and the position in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from solution.domain.graph import Graph
from solution.models.base import Ranker, RankerSettings
from solution.system.report import Report, silent


@dataclass(frozen=True)
class PositionSettings(RankerSettings):
    """Settings of the ranker; there are none."""

    def build(self, seed: int) -> "PositionRanker":
        return PositionRanker()


class PositionRanker(Ranker):
    """Scores a configuration by its position over the number of configurations."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        return (np.arange(graph.num_configs) / graph.num_configs).astype(np.float32)

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> Self:
        return self
