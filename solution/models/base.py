"""The contract of everything that ranks configurations.

A ranker is made by its settings (`settings.build(seed)`), fitted once, and then predicts, for any
graph of the collections that it was fitted on, one score a configuration. Nets, boosted trees and
baselines are all used the same way, so tests, folds and ensembles know nothing but this file.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np

from solution.domain.graph import Graph
from solution.system.report import Report, silent


class Ranker(ABC):
    """Scores the configurations of a graph: lower is faster, comparable inside one graph only.

    Graphs come prepared (solution.store.preparation): padding repaired, layout graphs pruned to
    `hops` around the configurable nodes.

    Predictions must not depend on the order of nodes or of configurations, identical
    configurations must get equal scores, and a loaded ranker must predict the same bytes.
    """

    learns: ClassVar[bool] = True  # False: it predicts without labelled graphs

    @property
    def hops(self) -> int | None:
        """How far around the configurable nodes it looks; None: at the whole graph."""
        return 1

    @abstractmethod
    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Learn from labelled graphs.

        Args:
            graphs: what to learn from; read one at a time, they may not all fit in memory.
            validation: what to stop early on; may be empty. Never the graphs that are reported.
            report: called as the work goes on.
        """

    def keep_checkpoints(self, folder: Path) -> None:  # noqa: B027 - most need none
        """Keep the state of the fits to come in an existing folder, and go on from what is there.

        A ranker that is fitted in seconds leaves it empty.
        """

    @abstractmethod
    def predict(self, graph: Graph) -> np.ndarray:
        """The scores (num_configs,) float32, finite."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that `load` needs into an existing folder."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote."""


class RankerSettings(Protocol):
    """A frozen dataclass that says everything about a ranker but its seed."""

    def build(self, seed: int) -> Ranker:
        """Make a ranker that is not fitted yet."""
        ...
