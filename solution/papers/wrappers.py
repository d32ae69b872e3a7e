"""A ranker that averages another ranker's scores over short lists of configurations.

A model may look at all configurations of a graph at once, so that a configuration's score depends
on the others in the list. Averaging improves such scores: SublistAverage divides the list at random
into short lists, several times.

Averaging does not change scores that depend on no other configuration. The random order depends
only on the contents of the configurations, so their order in the list changes nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from solution.domain.codebook import Codebook, mix
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.models.base import Ranker, RankerSettings
from solution.models.settings import check_size
from solution.papers.node_subsets import hash_nodes
from solution.system.report import Report, silent

INNER = "ranker"
MAX_TIMES, MAX_SIZE = 10_000, 1 << 30


@dataclass(frozen=True)
class WrapperSettings(RankerSettings):
    """Settings of a ranker that wraps a ranker and prepares graphs like the wrapped ranker."""

    ranker: RankerSettings

    @property
    def learns(self) -> bool:
        return self.ranker.learns

    @property
    def needed_hops(self) -> int | None:
        return self.ranker.needed_hops

    @property
    def preparation(self) -> Preparation:
        return self.ranker.preparation


@dataclass(frozen=True)
class SublistAverageSettings(WrapperSettings):
    """Settings of SublistAverage: the `ranker` whose scores are averaged, the number of random
    divisions (`times`), and the maximum number of configurations in a list (`size`). A good `size`
    is the number of configurations that the ranker saw together in training."""

    times: int = 4
    size: int = 100

    def build(self, seed: int) -> "SublistAverage":
        """Return an unfitted ranker; the seed is also the wrapped ranker's."""
        return SublistAverage(self.ranker.build(seed), self.size, times=self.times, seed=seed)


class SublistAverage(Ranker):
    """A ranker that averages another ranker's scores over `times` random divisions of the
    configurations into lists of at most `size`."""

    def __init__(self, ranker: Ranker, size: int, *, times: int, seed: int) -> None:
        check_size("times", times, MAX_TIMES)
        check_size("size", size, MAX_SIZE)
        self.ranker, self.size = ranker, size
        self.times, self.seed = times, seed

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        self.ranker.fit(graphs, validation, report)
        return self

    def keep_checkpoints(self, folder: Path) -> None:
        self.ranker.keep_checkpoints(folder)

    def predict(self, graph: Graph) -> np.ndarray:
        distinct = graph.distinct
        single = graph.select(distinct.first)
        total = np.zeros(single.num_configs)
        for time in range(self.times):
            order = _shuffle(single, f"{self.seed}/{time}")
            for positions in np.array_split(order, -(-len(order) // self.size)):
                total[positions] += self.ranker.predict(single.select(positions))
        return (total / self.times).astype(np.float32)[distinct.inverse]

    def save(self, folder: Path) -> None:
        inner = folder / INNER
        inner.mkdir(exist_ok=True)
        self.ranker.save(inner)

    def load(self, folder: Path) -> Self:
        self.ranker.load(folder / INNER)
        return self


def _shuffle(graph: Graph, key: str) -> np.ndarray:
    """Return a random order (configs,) of distinct configurations that depends only on `key` and
    their contents, not on their given order, nor on the order of the nodes."""
    configs = graph.configs
    rows = _hash_layouts(graph)[:, None] if isinstance(configs, Codebook) else configs
    if graph.options is not None:
        rows = np.column_stack([rows, graph.options.astype(rows.dtype)])
    digests = [
        hashlib.blake2b(row.tobytes(), digest_size=16, key=key.encode()).digest()
        for row in np.ascontiguousarray(rows)
    ]
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), np.int64)


def _hash_layouts(graph: Graph) -> np.ndarray:
    """Return a hash (configs,) uint64 of each configuration: the sum over the configurable nodes of
    mix(hash of the node, hash of its layouts)."""
    layouts = graph.layouts
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in layouts.layouts]
    hashes = np.frombuffer(b"".join(digests), np.uint64)
    nodes, pairs = hash_nodes(graph)[graph.configurable], layouts.pairs(layouts.rows)
    total = np.zeros(len(pairs), np.uint64)
    for node, pair in zip(nodes, pairs.T, strict=True):
        total += mix(mix(hashes[pair]) ^ node)
    return total
