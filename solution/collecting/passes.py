"""Time loaded configurations in one child, all of them in every pass, in a new random order."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from solution.collecting.child import Load, Open, Refusal, Run
from solution.collecting.children import Child, ChildDiedError
from solution.collecting.journal import DIED, Journal
from solution.collecting.program import Program
from solution.collecting.timing import SCHEMA, choose_runs


class Passes:
    """A child that holds the executables of a program, and the times that it gives."""

    def __init__(
        self, child: Child, program: Program, journal: Journal, generator: np.random.Generator
    ) -> None:
        self._child = child
        self._program = program
        self._journal = journal
        self._generator = generator
        self._executables: dict[str, bytes] = {}
        self._runs: dict[str, int] = {}  # of a visit
        self._is_open = False  # the child may still hold another program's arguments

    @property
    def loaded(self) -> list[str]:
        return list(self._runs)

    def load(self, executables: Mapping[str, bytes]) -> None:
        """Add configurations; one that cannot even be run here is marked as dead."""
        self._executables |= executables
        for name in executables:
            self._ask(name, partial(self._load, name))

    def make_pass(self, only: set[str] | None = None) -> None:
        """Visit all configurations, or only some; the log is written when all were seen."""
        turn = self._journal.next_turn
        names = [name for name in self._runs if only is None or name in only]
        rows = []
        for place in self._generator.permutation(len(names)):
            name = names[place]
            timings = self._ask(name, partial(self._visit, name))
            if timings is not None:
                rows.append(_tabulate(name, turn, timings))
        self._journal.add_repeats(rows)

    def _visit(self, name: str) -> Any:
        return self._child.ask(Run(name, self._runs[name]))

    def _load(self, name: str) -> Any:
        if not self._child.is_alive or not self._is_open:
            self._reopen()
        estimate = self._child.ask(Load(name, self._executables[name]))
        if not isinstance(estimate, Refusal):
            self._runs[name] = choose_runs(estimate)
        return estimate

    def _ask(self, name: str, ask: Callable[[], Any]) -> Any:
        """What the child says; where it dies of a configuration, the others are loaded again."""
        try:
            reply = ask()
        except ChildDiedError as error:
            reply = Refusal(str(error))
        if not isinstance(reply, Refusal):
            return reply
        self._journal.mark(name, DIED, f"while it was timed: {reply.reason}")
        self._runs.pop(name, None)
        self._executables.pop(name, None)
        if not self._child.is_alive:
            self._reopen()
        return None

    def _reopen(self) -> None:
        self._child.ask(Open(b"", self._program.arguments))
        self._is_open = True
        for name in self._runs:
            self._child.ask(Load(name, self._executables[name]))


def _tabulate(name: str, turn: int, timings: Any) -> pl.DataFrame:
    """The rows of a visit, of the journal's schema; passes belong to the halves by turns."""
    count = len(timings.cpu)
    columns = {
        "config": [name] * count,
        "half": np.full(count, turn % 2, np.uint8),
        "turn": np.full(count, turn, np.uint32),
        "cpu_ns": timings.cpu,
        "wall_ns": timings.wall,
    }
    return pl.DataFrame(columns, SCHEMA)
