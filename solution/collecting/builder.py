"""Compile configurations in a child, one after the other; what kills it costs only itself."""

import numpy as np

from solution.collecting.child import CLOSED, Compile, Compiled, Refusal
from solution.collecting.children import Child, ChildDiedError
from solution.collecting.examination import Examined, Examiner
from solution.collecting.journal import DIED, REFUSED, SOUND, WRONG
from solution.collecting.program import Program


class Builder:
    """A child in which a program is open; where it died, the program is opened in the next."""

    def __init__(self, child: Child, program: Program, *, needs_edges: bool = False) -> None:
        """Take a child and a program.

        Args:
            needs_edges: as Examiner has it.
        """
        self._child = child
        self._examiner = Examiner(child, program, needs_edges=needs_edges)
        self._examined: Examined | None = None
        self._is_open = False

    @property
    def arguments(self) -> list[np.ndarray]:
        """What the program is called with, once it is open."""
        assert self._examined is not None
        return self._examined.sets[0].arguments

    @property
    def note(self) -> str:
        """What is not compared, in words; empty where all is."""
        return self._examined.note if self._examined is not None else ""

    def open(self) -> Compiled:
        """Compile the program as it is, and keep its results.

        Raises InputError where that fails, or the results would show nothing: there is nothing to
        compare with.
        """
        if self._examined is None:
            self._examined = self._examiner.run()
            compiled = self._examined.compiled
        else:
            compiled = self._examiner.reopen(self._examined)
        self._is_open = True
        return compiled

    def build(self, request: Compile, seconds: float | None = None) -> tuple[str, str, Compiled]:
        """The status of a configuration, a note, and what was compiled."""
        nothing = Compiled(b"", 0.0, "")
        try:
            if not self._child.is_alive or not self._is_open:
                self.open()
            reply = self._child.ask(request, seconds)
            if reply == Refusal(CLOSED):  # somebody ended the child since the program was opened
                self.open()
                reply = self._child.ask(request, seconds)
        except ChildDiedError as error:
            return DIED, str(error), nothing
        if isinstance(reply, Refusal):
            return REFUSED, reply.reason, nothing
        return (WRONG if reply.deviation else SOUND), reply.deviation, reply
