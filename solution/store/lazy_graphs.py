"""A sequence of prepared graphs that are read when they are needed, and kept while they fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from solution.domain.graph import Graph
from solution.domain.memo import Budget
from solution.features.preparation import Preparation
from solution.store.graph_file import read_prepared

AS_IT_IS = Preparation(None)


class GraphCache:
    """Graphs that were read, the first ones kept while they take little memory together."""

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self._graphs: dict[tuple[Path, Preparation], Graph] = {}
        self._budget = Budget(max_bytes)

    def read(
        self,
        path: Path,
        preparation: Preparation = AS_IT_IS,
        seal: str | None = None,
        *,
        is_checked: bool = False,
    ) -> Graph:
        """Read the file, which must have the `seal`, and prune it; or what was read so before."""
        key = path, preparation
        if key in self._graphs:
            return self._graphs[key]
        graph = preparation.prune(read_prepared(path, seal, is_checked=is_checked))
        if self._budget.take(graph.nbytes):
            self._graphs[key] = graph
        return graph


class LazyGraphs(Sequence[Graph]):
    """The graphs of prepared files, read one at a time through the cache.

    Args:
        seals: what the files must have, in the same order; by default any.
        is_checked: their mapped arrays were compared before.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        cache: GraphCache,
        preparation: Preparation = AS_IT_IS,
        seals: Sequence[str | None] | None = None,
        *,
        is_checked: bool = False,
    ) -> None:
        self._paths = list(paths)
        self._seals = [None] * len(paths) if seals is None else list(seals)
        self._cache = cache
        self._preparation = preparation
        self._is_checked = is_checked

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyGraphs": ...
    def __getitem__(self, index: int | slice) -> "Graph | LazyGraphs":
        if isinstance(index, slice):
            return LazyGraphs(
                self._paths[index],
                self._cache,
                self._preparation,
                self._seals[index],
                is_checked=self._is_checked,
            )
        path, seal = self._paths[index], self._seals[index]
        return self._cache.read(path, self._preparation, seal, is_checked=self._is_checked)
