"""Time loaded configurations in one child: each pass visits all, in a new random order."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from solution.collecting.child import Timings
from solution.collecting.journal import DIED, Journal
from solution.collecting.loaded import Loaded
from solution.collecting.timing import SCHEMA
from solution.programs.child import Child


class Passes:
    """A child with the executables of a program, and the times that it measured."""

    def __init__(
        self,
        child: Child,
        arguments: Sequence[np.ndarray],
        journal: Journal,
        generator: np.random.Generator,
    ) -> None:
        self._journal = journal
        self._generator = generator
        self._loaded = Loaded(child, arguments, self._mark)

    def load(self, executables: Mapping[str, bytes]) -> None:
        """Load configurations; mark one that cannot be run here as dead."""
        for name, executable in executables.items():
            self._loaded.add(name, executable)

    def make_pass(self, only: set[str] | None = None) -> None:
        """Visit all configurations (or those in `only`); write the journal after the whole pass."""
        turn = self._journal.next_turn
        names = [name for name in self._loaded.names if only is None or name in only]
        rows = []
        for place in self._generator.permutation(len(names)):
            timings = self._loaded.visit(names[place])
            if timings is not None:
                rows.append(_tabulate(names[place], turn, timings))
        self._journal.add_repeats(rows)

    def _mark(self, name: str, reason: str) -> None:
        self._journal.mark(name, DIED, f"while it was timed: {reason}")


def _tabulate(name: str, turn: int, timings: Timings) -> pl.DataFrame:
    """Return a visit's rows in the journal's schema; passes alternate between the two halves."""
    count = len(timings.cpu)
    columns = {
        "config": [name] * count,
        "half": np.full(count, turn % 2, np.uint8),
        "turn": np.full(count, turn, np.uint32),
        "cpu_ns": timings.cpu,
        "wall_ns": timings.wall,
    }
    return pl.DataFrame(columns, SCHEMA)
