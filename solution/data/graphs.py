"""A sequence of graphs that reads its files when they are needed and keeps what fits in memory."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload
from weakref import WeakKeyDictionary

from solution.data.folders import GraphFile
from solution.data.npz import read_graph
from solution.graph import Graph

T = TypeVar("T")


class GraphCache:
    """Graphs that were read, kept while they take less than `max_bytes` together."""

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self._graphs: dict[GraphFile, Graph] = {}
        self._bytes_left = max_bytes

    def read(self, file: GraphFile) -> Graph:
        """Read the file, or return the graph that was read from it before."""
        if file in self._graphs:
            return self._graphs[file]
        graph = read_graph(file.path, file.collection)
        if graph.nbytes <= self._bytes_left:
            self._graphs[file] = graph
            self._bytes_left -= graph.nbytes
        return graph


class LazyGraphs(Sequence[Graph]):
    """The graphs of `files`, read one at a time through the cache."""

    def __init__(self, files: Sequence[GraphFile], cache: GraphCache) -> None:
        self._files = list(files)
        self._cache = cache

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyGraphs": ...
    def __getitem__(self, index: int | slice) -> "Graph | LazyGraphs":
        if isinstance(index, slice):
            return LazyGraphs(self._files[index], self._cache)
        return self._cache.read(self._files[index])


class PerGraph(Generic[T]):
    """A function of a graph whose results are kept as long as the graph itself.

    Folds and seeds share their graphs, so what depends on the graph alone is computed once.
    """

    def __init__(self, function: Callable[[Graph], T]) -> None:
        self._function = function
        self._results: WeakKeyDictionary[Graph, T] = WeakKeyDictionary()

    def __call__(self, graph: Graph) -> T:
        if graph not in self._results:
            self._results[graph] = self._function(graph)
        return self._results[graph]
