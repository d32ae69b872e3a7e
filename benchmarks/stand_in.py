"""A ranker that learns nothing and trains in no time, to measure everything around the training.

It is copied under the names of two members, and has as many seeds as the nets of a default run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32

import numpy as np

from solution.domain.collection import NAMES
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.base import Ranker, RankerSettings
from solution.system.report import Report, silent


@dataclass(frozen=True)
class StandInSettings(RankerSettings):
    """Settings of StandIn, which has none."""

    def build(self, seed: int) -> "StandIn":
        """Return the ranker."""
        return StandIn(seed)


class StandIn(Ranker):
    """Scores at random, the same for the same graph and seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        generator = np.random.default_rng([self._seed, crc32(graph.name.encode())])
        return generator.random(graph.num_configs, np.float32)

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> Self:
        return self


EXPERIMENT = Experiment(
    name=Path(__file__).stem, collections=NAMES, ranker=StandInSettings(), seeds=(0, 1, 2)
)
