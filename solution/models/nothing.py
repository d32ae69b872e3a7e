"""Give every configuration the same score.

This is the baseline of every comparison. Its ranking is submitted if no model could be trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from solution.domain.graph import Graph
from solution.models.base import Ranker, RankerSettings
from solution.system.report import Report, silent


@dataclass(frozen=True)
class NothingSettings(RankerSettings):
    """The settings of NothingRanker: it has no fields."""

    @property
    def learns(self) -> bool:
        return False

    def build(self, seed: int) -> "NothingRanker":
        """Return the ranker; the seed has no effect."""
        return NothingRanker()


class NothingRanker(Ranker):
    """A ranker that scores every configuration 0, so a stable sort keeps the order of the file."""

    scores_beside_a_list = True

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        return np.zeros(graph.num_configs, np.float32)

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> Self:
        return self
