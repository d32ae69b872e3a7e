"""What a model says of configurations beside a list, in deviations of the list's own scores."""

import dataclasses
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.models.layout.layout_forward import LayoutForward
from solution.models.layout.listed_net import ListedNet
from solution.models.light import Scorer


class Listed(Protocol):
    """A model beside a list."""

    def vote(self, configs: np.ndarray) -> np.ndarray:
        """What the model says of `configs` (k, ...): (k,) float64 deviations, lower is faster."""
        ...


@runtime_checkable
class HasLayoutNet(Protocol):
    """A layout net, or what can give its weights to one without torch."""

    def in_numpy(self) -> LayoutForward:
        """The net as it predicts without torch."""
        ...


def put_beside(ranker: Scorer, listed: Graph) -> Listed:
    """The model beside the graph's configurations, which are prepared for it."""
    if isinstance(ranker, HasLayoutNet):
        return NetBeside(ListedNet(ranker.in_numpy(), listed))
    return TogetherWith(ranker, listed) if ranker.scores_beside_a_list else Alone(ranker, listed)


class NetBeside:
    """A layout net: what is like something known costs only what it changes."""

    def __init__(self, net: ListedNet) -> None:
        self._net = net

    def vote(self, configs: np.ndarray) -> np.ndarray:
        listed = self._net.listed.astype(np.float64)
        return _deviation(self._net.score(configs).astype(np.float64), listed)


class TogetherWith:
    """A model that is told which configurations are the list: it scores all in one go."""

    def __init__(self, ranker: Scorer, listed: Graph) -> None:
        self._ranker, self._graph = ranker, listed
        self._own: np.ndarray | None = None  # the list's scores

    def vote(self, configs: np.ndarray) -> np.ndarray:
        scores = self._ranker.predict(_join(self._graph, configs)).astype(np.float64)
        if self._own is None:
            # Of the first batch: what a matrix product rounds depends on how much is multiplied.
            self._own = scores[: -len(configs)]
        return _deviation(scores[-len(configs) :], self._own)


class Alone:
    """A model that compares whatever it is given: each comes alone to the list."""

    def __init__(self, ranker: Scorer, listed: Graph) -> None:
        self._ranker, self._graph = ranker, listed

    def vote(self, configs: np.ndarray) -> np.ndarray:
        return np.array([_deviation(*part)[0] for part in self._score(configs)])

    def _score(self, configs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The score (1,) of each configuration, and the list's beside it."""
        for config in configs:
            joined = dataclasses.replace(_join(self._graph, config[None]), listed=None)
            scores = self._ranker.predict(joined).astype(np.float64)
            yield scores[-1:], scores[:-1]


def _join(listed: Graph, configs: np.ndarray) -> Graph:
    """The program with the list's configurations and the new ones, of which none is listed."""
    if listed.collection.kind == "layout":
        together = np.concatenate([listed.layouts.expand(), configs])
        joined: Codebook | np.ndarray = encode(together)
    else:
        joined = np.concatenate([listed.tiles, configs])
    marks = np.arange(listed.num_configs + len(configs)) < listed.num_configs
    return dataclasses.replace(listed, configs=joined, runtimes=None, listed=marks)


def _deviation(scores: np.ndarray, listed: np.ndarray) -> np.ndarray:
    return np.asarray((scores - listed.mean()) / (listed.std() or 1.0))
