"""Cache results of functions of a graph for as long as the graph lives, within a memory budget."""

import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from solution.domain.graph import Graph

T = TypeVar("T")


class Budget:
    """The bytes that the caches may still use."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Reserve `count` bytes; return False if the budget does not allow it."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._left += count


@contextmanager
def naming(graph: Graph) -> Iterator[None]:
    """Add the graph's name to any error raised inside."""
    try:
        yield
    except Exception as error:
        note = f"It happened with the graph {':'.join(graph.key)}."
        if note not in getattr(error, "__notes__", ()):  # nested calls add the note once
            error.add_note(note)
        raise


class PerGraph(Generic[T]):
    """A function of a graph whose results are cached for as long as the graph lives, if they fit.

    Folds and seeds share their graphs, so results that depend on the graph alone are computed once.
    An error of the function names the graph.
    """

    budget = Budget(1 << 30)  # shared by all functions

    def __init__(self, function: Callable[[Graph], T]) -> None:
        self._function = function
        self._results: WeakKeyDictionary[Graph, T] = WeakKeyDictionary()

    def __call__(self, graph: Graph) -> T:
        if graph in self._results:
            return self._results[graph]
        with naming(graph):
            result = self._function(graph)
        size = count_bytes(result)
        if self.budget.take(size):
            self._results[graph] = result
            weakref.finalize(graph, self.budget.give_back, size)
        return result


def count_bytes(value: Any) -> int:
    """Return the bytes in memory of an array or tensor, or of everything in a container. A
    container is a dataclass, list, tuple or dictionary. A memory-mapped array counts as 0."""
    if dataclasses.is_dataclass(value):
        return sum(count_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, (list, tuple)):
        return sys.getsizeof(value) + sum(count_bytes(part) for part in value)
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(count_bytes(part) for part in value.values())
    if isinstance(getattr(value, "base", None), np.memmap):
        return 0
    return int(value.nbytes) if hasattr(value, "nbytes") else sys.getsizeof(value)
