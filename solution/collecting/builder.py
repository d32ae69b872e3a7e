"""Compile configurations in a child, one after the other; what kills it costs only itself."""

from solution.collecting.child import Compile, Compiled, Open, Refusal
from solution.collecting.children import Child, ChildDiedError
from solution.collecting.journal import DIED, REFUSED, SOUND, WRONG
from solution.collecting.program import Program
from solution.system.errors import InputError


class Builder:
    """A child in which a program is open; where it died, the program is opened in the next."""

    def __init__(self, child: Child, program: Program) -> None:
        self._child = child
        self._program = program
        self._is_open = False

    def open(self) -> Compiled:
        """Compile the program as it is, and keep its results.

        Raises InputError where that fails: there is nothing to compare with.
        """
        try:
            program = self._program
            reply = self._child.ask(Open(program.plain, program.arguments))
        except ChildDiedError as error:
            reply = Refusal(str(error))
        if isinstance(reply, Refusal):
            raise InputError(
                f"{self._program.name}: the compiler does not take the program as it is: "
                f"{reply.reason.rstrip('.')}. Expected one that it compiles and runs within the "
                "limits."
            )
        self._is_open = True
        return reply

    def build(self, request: Compile, seconds: float | None = None) -> tuple[str, str, Compiled]:
        """The status of a configuration, a note, and what was compiled."""
        if not self._child.is_alive or not self._is_open:
            self.open()
        nothing = Compiled(b"", 0.0, "")
        try:
            reply = self._child.ask(request, seconds)
        except ChildDiedError as error:
            return DIED, str(error), nothing
        if isinstance(reply, Refusal):
            return REFUSED, reply.reason, nothing
        return (WRONG if reply.deviation else SOUND), reply.deviation, reply
