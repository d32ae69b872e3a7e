"""A sequence of prepared graphs that are read on demand and cached within a memory budget."""

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from solution.domain.graph import Graph
from solution.domain.memo import Budget
from solution.features.preparation import Preparation
from solution.store.graph_file import read_prepared

AS_IT_IS = Preparation(None)


class GraphCache:
    """A cache of graphs: the first ones read are kept until `max_bytes` are used."""

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
        """Return the pruned graph of a file, from the cache if possible.

        The file must have the checksum `seal` (None: any). `is_checked` is as in read_prepared.
        """
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
        seals: the checksum that each file must have, in the order of `paths`; None accepts any.
        is_checked: skip the checksums of mapped arrays, because they were compared before.
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
