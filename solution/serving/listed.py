"""Score configurations against a reference list, in standard deviations of the list's scores."""

import dataclasses
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np

from solution.domain.codebook import Codebook, encode
from solution.domain.graph import Graph
from solution.models.layout.layout_forward import LayoutForward
from solution.models.layout.listed_net import ListedNet
from solution.models.light import Scorer


class Listed(Protocol):
    """A model with a fixed reference list."""

    def vote(self, configs: np.ndarray) -> np.ndarray:
        """Return scores (k,) float64 of `configs` (k, ...) in deviations of the list; lower is
        faster."""
        ...


@runtime_checkable
class HasLayoutNet(Protocol):
    """A layout net, or a ranker that can export its weights to a net without torch."""

    def in_numpy(self) -> LayoutForward:
        """Return the net that predicts with numpy alone."""
        ...


def put_beside(ranker: Scorer, listed: Graph) -> Listed:
    """Return the model with the configurations of `listed`, a prepared graph, as reference list."""
    if isinstance(ranker, HasLayoutNet):
        return NetBeside(ListedNet(ranker.in_numpy(), listed))
    return TogetherWith(ranker, listed) if ranker.scores_beside_a_list else Alone(ranker, listed)


class NetBeside:
    """A layout net with incremental inference: work is proportional to the nodes that change."""

    def __init__(self, net: ListedNet) -> None:
        self._net = net

    def vote(self, configs: np.ndarray) -> np.ndarray:
        listed = self._net.listed.astype(np.float64)
        return _deviation(self._net.score(configs).astype(np.float64), listed)


class TogetherWith:
    """For models that know which configurations are the reference list: scores a batch in one
    call."""

    def __init__(self, ranker: Scorer, listed: Graph) -> None:
        self._ranker, self._graph = ranker, listed
        self._own: np.ndarray | None = None  # scores of the reference list

    def vote(self, configs: np.ndarray) -> np.ndarray:
        scores = self._ranker.predict(_join(self._graph, configs)).astype(np.float64)
        if self._own is None:
            # Keep the first batch's: rounding in matrix products depends on the size of the batch.
            self._own = scores[: -len(configs)]
        return _deviation(scores[-len(configs) :], self._own)


class Alone:
    """For models whose scores depend on the batch: joins each configuration alone to the list."""

    def __init__(self, ranker: Scorer, listed: Graph) -> None:
        self._ranker, self._graph = ranker, listed

    def vote(self, configs: np.ndarray) -> np.ndarray:
        return np.array([_deviation(*part)[0] for part in self._score(configs)])

    def _score(self, configs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the score (1,) of each configuration, and the list's scores in the same call."""
        for config in configs:
            joined = dataclasses.replace(_join(self._graph, config[None]), listed=None)
            scores = self._ranker.predict(joined).astype(np.float64)
            yield scores[-1:], scores[:-1]


def _join(listed: Graph, configs: np.ndarray) -> Graph:
    """Return the program with the list's and the new configurations; only the list is marked."""
    if listed.collection.kind == "layout":
        together = np.concatenate([listed.layouts.expand(), configs])
        joined: Codebook | np.ndarray = encode(together)
    else:
        joined = np.concatenate([listed.tiles, configs])
    marks = np.arange(listed.num_configs + len(configs)) < listed.num_configs
    return dataclasses.replace(listed, configs=joined, runtimes=None, listed=marks)


def _deviation(scores: np.ndarray, listed: np.ndarray) -> np.ndarray:
    return np.asarray((scores - listed.mean()) / (listed.std() or 1.0))
