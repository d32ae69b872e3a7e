"""Measure how well a net ranks graphs that it does not learn from."""

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
    """Measures of a net's rankings, as means over the validation graphs."""

    score: float  # the metric of the graph's collection, see solution.domain.metrics.score_ranking
    opa: float  # ordered pair accuracy
    tau: float  # Kendall's tau
    loss: float  # the function that training minimises, here on the validation graphs

    def measures(self) -> dict[str, float]:
        """Return {name: value} of all measures but `score`, for the log."""
        return {"opa": self.opa, "tau": self.tau, "validation_loss": self.loss}


METRICS = ("score", "opa", "tau")  # measures that may decide which epoch's weights are kept


def validate(
    net: nn.Module,
    examples: Sequence[Example[Any]],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> Validation:
    """Score every graph once and return the mean measures. `size`, the number of configurations
    that one loss compares, must be as in training, because some losses grow with it."""
    ranking = as_ranking(net)
    rows = []
    for example in examples:
        scores = ranking.score_graph(example.inputs)
        rows.append(_measure(scores, example, loss, size))
    return Validation(*(float(np.mean(column)) for column in zip(*rows, strict=True)))


def _measure(
    scores: np.ndarray, example: Example[Any], loss: Callable[[Tensor, Tensor], Tensor], size: int
) -> tuple[float, ...]:
    runtimes, name = example.runtimes, example.key[0]
    # Kendall's tau is slow, so it is computed once; for layouts it is also the score
    tau = kendall_tau(scores, runtimes)
    score = tau if collection(name).kind == "layout" else score_ranking(name, scores, runtimes)
    opa = ordered_pair_accuracy(scores, runtimes, tau=tau)
    lists = [torch.from_numpy(deal(values, size)) for values in (scores, runtimes)]
    return score, NO_ORDER if np.isnan(opa) else opa, tau, float(loss(*lists))


def deal(values: np.ndarray, size: int) -> np.ndarray:
    """Reshape values (n,) to (size, lists): value i is in row i // lists and column i % lists. The
    number of lists (columns) is n / size, rounded up. If n is no multiple of `size`, the end is
    filled with the first values again."""
    lists = -(-len(values) // size)
    return np.resize(values, size * lists).reshape(size, lists)
