"""How good a net is on graphs that it does not learn from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain.collection import collection
from solution.domain.metrics import kendall_tau, ordered_pair_accuracy, score_ranking
from solution.models.nets.ranking_net import Example, as_ranking

NO_ORDER = 0.5  # OPA of a graph whose configurations are all equally fast: as of no ranking


@dataclass(frozen=True)
class Validation:
    """Means over the graphs."""

    score: float  # the collections' own
    opa: float
    tau: float
    loss: float

    def measures(self) -> dict[str, float]:
        """What is kept beside the score that weights are chosen by."""
        return {"opa": self.opa, "tau": self.tau, "validation_loss": self.loss}


METRICS = ("score", "opa", "tau")  # what weights may be chosen by


def validate(
    net: nn.Module,
    examples: Sequence[Example[Any]],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> Validation:
    """Score every graph once and measure its ranking.

    Args:
        size: configurations that are compared in the loss: those of a training step, as losses of
            longer lists are larger.
    """
    ranking = as_ranking(net)
    rows = []
    for example in examples:
        scores = ranking.score_graph(example.inputs)
        rows.append(_measure(scores, example, loss, size))
    return Validation(*(float(np.mean(column)) for column in zip(*rows, strict=True)))


def _measure(
    scores: np.ndarray,
    example: Example[Any],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> tuple[float, ...]:
    runtimes, name = example.runtimes, example.key[0]
    tau = kendall_tau(scores, runtimes)  # which takes longest, so once: of layouts it is the score
    score = tau if collection(name).kind == "layout" else score_ranking(name, scores, runtimes)
    opa = ordered_pair_accuracy(scores, runtimes, tau=tau)
    lists = [torch.from_numpy(deal(values, size)) for values in (scores, runtimes)]
    return score, NO_ORDER if np.isnan(opa) else opa, tau, float(loss(*lists))


def deal(values: np.ndarray, size: int) -> np.ndarray:
    """Deal values (n,) out to lists of `size`: (size, lists); the last ones are repeated."""
    lists = -(-len(values) // size)
    return np.resize(values, size * lists).reshape(size, lists)
