"""Measure a net on graphs that it does not learn from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain.collection import collection
from solution.domain.metrics import kendall_tau, ordered_pair_accuracy, score_ranking
from solution.models.nets.ranking_net import Example, as_ranking

NO_ORDER = 0.5  # OPA (ordered pair accuracy) of a graph whose runtimes are all equal


@dataclass(frozen=True)
class Validation:
    """Means over the validation graphs."""

    score: float  # the collection's score
    opa: float
    tau: float
    loss: float

    def measures(self) -> dict[str, float]:
        """Return the measures that are logged beside the one that chooses weights."""
        return {"opa": self.opa, "tau": self.tau, "validation_loss": self.loss}


METRICS = ("score", "opa", "tau")  # measures that may choose weights


def validate(
    net: nn.Module,
    examples: Sequence[Example[Any]],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> Validation:
    """Score every graph once and measure its ranking.

    Args:
        size: configurations compared in one loss, as in a training step: losses of longer lists are
            larger.
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
    # the slowest measure, computed once: for layouts it is the score
    tau = kendall_tau(scores, runtimes)
    score = tau if collection(name).kind == "layout" else score_ranking(name, scores, runtimes)
    opa = ordered_pair_accuracy(scores, runtimes, tau=tau)
    lists = [torch.from_numpy(deal(values, size)) for values in (scores, runtimes)]
    return score, NO_ORDER if np.isnan(opa) else opa, tau, float(loss(*lists))


def deal(values: np.ndarray, size: int) -> np.ndarray:
    """Split values (n,) into lists of `size`: (size, lists); the last values are repeated."""
    lists = -(-len(values) // size)
    return np.resize(values, size * lists).reshape(size, lists)
