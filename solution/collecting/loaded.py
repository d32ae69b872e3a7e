"""Keep executables loaded in a child process; drop an executable that kills the process.

If the process died, the next request starts a new one and loads all remaining executables into it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from solution.collecting.child import CLOSED, Load, Open, Run, Timings
from solution.collecting.timing import choose_runs
from solution.programs.child import Child, ChildDiedError, Refusal, TooMuchError

# maximum number of attempts to run an executable if the child process is replaced meanwhile
TRIES = 3


class Loaded:
    """The executables of one program that a child process has loaded, by name."""

    def __init__(
        self, child: Child, arguments: Sequence[np.ndarray], bury: Callable[[str, str], None]
    ) -> None:
        """Use a child process without executables yet. `bury` is called with the name of an
        executable that cannot be run (and is removed), and the reason."""
        self._child, self._arguments, self._bury = child, arguments, bury
        self._executables: dict[str, bytes] = {}
        self._runs: dict[str, int] = {}  # {executable's name: number of timed runs in a `visit`}
        self._is_open = False  # True: the process has this program's arguments

    @property
    def names(self) -> list[str]:
        return list(self._executables)

    def add(self, name: str, executable: bytes) -> bool:
        """Load another executable; return True if it can be run. Raises ChildDiedError if the
        arguments alone kill a process."""
        self._restore()
        self._executables[name] = executable
        self._load(name)
        self._restore()
        return name in self._executables

    def visit(self, name: str) -> Timings | None:
        """Run an executable a few times, and return the times; None if it is not loaded or cannot
        be run. Raises ChildDiedError if the arguments alone kill a process."""
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
        """Remove all executables except those with the given names."""
        kept = set(names)
        self._executables = {n: data for n, data in self._executables.items() if n in kept}

    def _restore(self) -> None:
        """If the process was replaced, load every executable into the new one; if an executable
        kills it, remove the executable and start over."""
        while not (self._is_open and self._child.is_alive):
            self._open()
            self._is_open = True
            for name in self.names:
                self._load(name)
                if not (self._is_open and self._child.is_alive):
                    break

    def _open(self) -> None:
        """Send the arguments to the process; retry once if it dies, not if it exceeds a limit."""
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
        """Return the process's reply; None after a failure. Remove an executable that kills the
        process or is refused, and call `bury`. Set `_is_open` to False if the process was replaced.
        """
        try:
            reply = self._child.ask(request)
        except ChildDiedError as error:
            reply = Refusal(str(error))
        if not isinstance(reply, Refusal):
            return reply
        if reply.reason == CLOSED:  # the child was replaced, and the new one has no program
            self._is_open = False
            return None
        del self._executables[name]
        self._bury(name, reply.reason)
        return None
