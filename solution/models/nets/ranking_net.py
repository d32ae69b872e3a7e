"""What the training loop needs of a net, and the graphs that it learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from torch import Tensor, nn

Inputs = TypeVar("Inputs")
NetInputs = TypeVar("NetInputs", contravariant=True)


@dataclass(frozen=True)
class Example(Generic[Inputs]):
    """A graph as a net takes it, with its labels."""

    inputs: Inputs
    runtimes: np.ndarray  # (distinct configs,)
    key: tuple[str, str]  # collection and name


class RankingNet(Protocol[NetInputs]):
    """What the loop needs of a net beside being a torch module."""

    def score_batch(self, batch: Sequence[NetInputs], configs: np.ndarray) -> Tensor:
        """Scores (configs, graphs) of the configurations `configs` (configs, graphs) int64."""
        ...

    def count_values(self, inputs: NetInputs) -> int:
        """How many values a layer holds for one configuration of the graph."""
        ...

    def score_graph(self, inputs: NetInputs) -> np.ndarray:
        """Scores (distinct configs,) of a graph."""
        ...


@runtime_checkable
class Regularised(Protocol):
    """A net that adds a term of its own to the loss."""

    def score_and_penalise(
        self, batch: Sequence[Any], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Scores as `score_batch` gives them, and the term () that is added to their loss."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A net for which much is counted and sorted before it multiplies."""

    def plan(self, batch: Sequence[Any], configs: np.ndarray) -> Any:
        """What `score_planned` takes; may be called in another thread, while the net is busy."""
        ...

    def score_planned(self, batch: Sequence[Any], configs: np.ndarray, plan: Any) -> Tensor:
        """Scores as `score_batch` gives them."""
        ...


def as_ranking(net: nn.Module) -> RankingNet[Any]:
    """The same net, seen as what the loop needs: every net here is both."""
    return cast("RankingNet[Any]", net)
