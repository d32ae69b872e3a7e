"""The executables that a child holds to run them: of those that it dies of, each costs only itself.

A child that died is followed by another where the next is asked for, and that one is given all that
is still held.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from solution.collecting.child import CLOSED, Load, Open, Refusal, Run, Timings
from solution.collecting.children import Child, ChildDiedError, TooMuchError
from solution.collecting.timing import choose_runs

TRIES = 3  # of a visit, where somebody ends one child after the other


class Loaded:
    """Executables of one program, by name."""

    def __init__(
        self, child: Child, arguments: Sequence[np.ndarray], bury: Callable[[str, str], None]
    ) -> None:
        """Hold nothing yet.

        Args:
            arguments: of the program.
            bury: told the name of one that cannot be run, and why; it is held no longer.
        """
        self._child, self._arguments, self._bury = child, arguments, bury
        self._executables: dict[str, bytes] = {}
        self._runs: dict[str, int] = {}  # of a visit
        self._is_open = False  # the child may still hold another program's arguments

    @property
    def names(self) -> list[str]:
        return list(self._executables)

    def add(self, name: str, executable: bytes) -> bool:
        """Hold one more; whether it can be run.

        Raises ChildDiedError where a child dies of the arguments alone.
        """
        self._restore()
        self._executables[name] = executable
        self._load(name)
        self._restore()
        return name in self._executables

    def visit(self, name: str) -> Timings | None:
        """Run one, a few times; None where it is not held, or no longer.

        Raises ChildDiedError where a child dies of the arguments alone.
        """
        timings: Timings | None = None
        for _ in range(TRIES):
            self._restore()
            if name not in self._executables:
                return None
            timings = self._ask(name, Run(name, self._runs[name]))
            if self._is_open:
                break
        return timings

    def keep(self, names: Iterable[str]) -> None:
        """Hold no others any longer."""
        kept = set(names)
        self._executables = {n: data for n, data in self._executables.items() if n in kept}

    def _restore(self) -> None:
        """Give a child that holds nothing all of them; where it dies of one, another the rest."""
        while not (self._is_open and self._child.is_alive):
            self._open()
            self._is_open = True
            for name in self.names:
                self._load(name)
                if not (self._is_open and self._child.is_alive):
                    break

    def _open(self) -> None:
        """Hand the arguments over, once more where the child is killed meanwhile."""
        request = Open(b"", self._arguments)
        try:
            self._child.ask(request)
        except TooMuchError:
            raise
        except ChildDiedError:
            self._child.ask(request)

    def _load(self, name: str) -> None:
        nanoseconds = self._ask(name, Load(name, self._executables[name]))
        if nanoseconds is not None:
            self._runs[name] = choose_runs(nanoseconds)

    def _ask(self, name: str, request: Load | Run) -> Any:
        """What the child says; None where it dies of it, or refuses, or holds nothing."""
        try:
            reply = self._child.ask(request)
        except ChildDiedError as error:
            reply = Refusal(str(error))
        if not isinstance(reply, Refusal):
            return reply
        if reply.reason == CLOSED:  # somebody ended the child that held it
            self._is_open = False
            return None
        del self._executables[name]
        self._bury(name, reply.reason)
        return None
