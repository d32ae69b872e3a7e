"""Define what the training loop needs of a net, and the examples that it learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from torch import Tensor, nn

Inputs = TypeVar("Inputs")
NetInputs = TypeVar("NetInputs", contravariant=True)


@dataclass(frozen=True)
class Example(Generic[Inputs]):
    """A graph as the net's inputs, with its labels."""

    inputs: Inputs
    runtimes: np.ndarray  # (distinct configs,)
    key: tuple[str, str]  # collection and name


class RankingNet(Protocol[NetInputs]):
    """What the training loop needs of a net, besides being a torch module."""

    def score_batch(self, batch: Sequence[NetInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs) of the configurations `configs` (configs, graphs)
        int64."""
        ...

    def count_values(self, inputs: NetInputs) -> int:
        """Return how many values a layer holds for one configuration of the graph."""
        ...

    def score_graph(self, inputs: NetInputs) -> np.ndarray:
        """Return scores (distinct configs,) of a graph."""
        ...


@runtime_checkable
class Regularised(Protocol):
    """A net that adds a term to the loss."""

    def score_and_penalise(
        self, batch: Sequence[Any], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of `score_batch`, and the term () that is added to their loss."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A net that counts and sorts before it multiplies; a plan holds the result."""

    def plan(self, batch: Sequence[Any], configs: np.ndarray) -> Any:
        """Return the plan for `score_planned`; another thread may call it while the net
        computes."""
        ...

    def score_planned(self, batch: Sequence[Any], configs: np.ndarray, plan: Any) -> Tensor:
        """Return the scores of `score_batch` from a plan."""
        ...


def as_ranking(net: nn.Module) -> RankingNet[Any]:
    """Return the net typed as a RankingNet; every net here is both."""
    return cast("RankingNet[Any]", net)
