"""Define the methods that the training loop calls on a net, and the examples that it learns
from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from torch import Tensor, nn

Inputs = TypeVar("Inputs")
NetInputs = TypeVar("NetInputs", contravariant=True)


@dataclass(frozen=True)
class Example(Generic[Inputs]):
    """A labelled graph: the net's inputs and the runtimes of its distinct configurations."""

    inputs: Inputs
    runtimes: np.ndarray  # (distinct configs,): mean runtime of each distinct configuration
    key: tuple[str, str]  # names of the collection and of the graph


class RankingNet(Protocol[NetInputs]):
    """A net that scores configurations; it must be a torch module as well."""

    def score_batch(self, batch: Sequence[NetInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs); column g of `configs` (configs, graphs) int64 has
        indices of graph g's distinct configurations."""
        ...

    def count_values(self, inputs: NetInputs) -> int:
        """Return how many values a layer holds for one configuration of the graph."""
        ...

    def score_graph(self, inputs: NetInputs) -> np.ndarray:
        """Return scores (distinct configs,) of all configurations of a graph, for prediction."""
        ...


@runtime_checkable
class Regularised(Protocol):
    """A net that adds a regularisation term to the training loss."""

    def score_and_penalise(
        self, batch: Sequence[Any], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return score_batch's scores, and a term () that is added to the loss."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A net that first builds a batch's index arrays (a plan), perhaps in another thread."""

    def plan(self, batch: Sequence[Any], configs: np.ndarray) -> Any:
        """Return the plan of this batch for score_planned. Another thread may call this method
        during a training step."""
        ...

    def score_planned(self, batch: Sequence[Any], configs: np.ndarray, plan: Any) -> Tensor:
        """Return the scores that score_batch returns, given the plan of this batch."""
        ...


def as_ranking(net: nn.Module) -> RankingNet[Any]:
    """Return the same net, typed as a RankingNet: all nets of this package follow that protocol."""
    return cast("RankingNet[Any]", net)
