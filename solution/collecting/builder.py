"""Compile configurations one by one in a child process; a crash fails one configuration only."""

import numpy as np

from solution.collecting.child import CLOSED, Compile, Compiled
from solution.collecting.examination import Examined, Examiner
from solution.collecting.journal import DIED, REFUSED, SOUND, WRONG
from solution.programs.child import Child, ChildDiedError, Refusal
from solution.programs.program import Program


class Builder:
    """A child with an open program. If the child dies, the program is opened in a new one."""

    def __init__(self, child: Child, program: Program, *, needs_edges: bool = False) -> None:
        """Use a child for a program.

        Args:
            needs_edges: see Examiner.
        """
        self._child = child
        self._examiner = Examiner(child, program, needs_edges=needs_edges)
        self._examined: Examined | None = None
        self._is_open = False

    @property
    def arguments(self) -> list[np.ndarray]:
        """Return the program's arguments; the program must be open."""
        assert self._examined is not None
        return self._examined.sets[0].arguments

    @property
    def note(self) -> str:
        """Return in words which results cannot be compared; "" if all can."""
        return self._examined.note if self._examined is not None else ""

    def open(self) -> Compiled:
        """Compile the program in its default configuration, and keep its results.

        Raises InputError if that fails, or if the results are useless for comparisons.
        """
        if self._examined is None:
            self._examined = self._examiner.run()
            compiled = self._examined.compiled
        else:
            compiled = self._examiner.reopen(self._examined)
        self._is_open = True
        return compiled

    def build(self, request: Compile, seconds: float | None = None) -> tuple[str, str, Compiled]:
        """Return a configuration's status, a note, and its compiled form."""
        nothing = Compiled(b"", 0.0, "")
        try:
            if not self._child.is_alive or not self._is_open:
                self.open()
            reply = self._child.ask(request, seconds)
            if reply == Refusal(CLOSED):  # the child was ended after the program was opened
                self.open()
                reply = self._child.ask(request, seconds)
        except ChildDiedError as error:
            return DIED, str(error), nothing
        if isinstance(reply, Refusal):
            return REFUSED, reply.reason, nothing
        return (WRONG if reply.deviation else SOUND), reply.deviation, reply
