"""A sequence of prepared graphs that are read when they are needed, and kept while they fit."""

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np

from solution.data.prepared import read_prepared
from solution.graph import Graph

T = TypeVar("T")


class Budget:
    """How many bytes of what could be computed again may still be kept."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Whether `count` bytes may be kept."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._left += count


class GraphCache:
    """Graphs that were read, the first ones kept while they take little memory together."""

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self._graphs: dict[Path, Graph] = {}
        self._budget = Budget(max_bytes)

    def read(self, path: Path) -> Graph:
        """Read the file, or return the graph that was read from it before."""
        if path in self._graphs:
            return self._graphs[path]
        graph = read_prepared(path)
        if self._budget.take(graph.nbytes):
            self._graphs[path] = graph
        return graph


class LazyGraphs(Sequence[Graph]):
    """The graphs of prepared files, read one at a time through the cache."""

    def __init__(self, paths: Sequence[Path], cache: GraphCache) -> None:
        self._paths = list(paths)
        self._cache = cache

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyGraphs": ...
    def __getitem__(self, index: int | slice) -> "Graph | LazyGraphs":
        if isinstance(index, slice):
            return LazyGraphs(self._paths[index], self._cache)
        return self._cache.read(self._paths[index])


class PerGraph(Generic[T]):
    """A function of a graph whose results are kept as long as the graph itself, while they fit.

    Folds and seeds share their graphs, so what depends on the graph alone is computed once.
    """

    budget = Budget(1 << 30)  # of all functions together

    def __init__(self, function: Callable[[Graph], T]) -> None:
        self._function = function
        self._results: WeakKeyDictionary[Graph, T] = WeakKeyDictionary()

    def __call__(self, graph: Graph) -> T:
        if graph in self._results:
            return self._results[graph]
        result = self._function(graph)
        size = count_bytes(result)
        if self.budget.take(size):
            self._results[graph] = result
            weakref.finalize(graph, self.budget.give_back, size)
        return result


def count_bytes(value: Any) -> int:
    """The bytes in memory of an array or tensor, or of all that are fields of a dataclass."""
    if dataclasses.is_dataclass(value):
        return sum(count_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    is_mapped = isinstance(getattr(value, "base", None), np.memmap)
    return 0 if is_mapped else int(getattr(value, "nbytes", 0))
