"""Check that the comparison of results notices errors, before it is trusted.

Results that are NaN, 0 or constant would hide any error. So mutants are run: versions of the
program with a deliberate error in the result of one product (dot or convolution), see mutants.py.
If the comparison of results does not notice an error, other arguments are tried. Sets of arguments
that reveal errors are kept, and the results of every configuration are compared for all of them.
Only the first set is used for timing: the arguments in the program's file, if it has any.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from solution.collecting.child import (
    CLOSED,
    Add,
    Compiled,
    Drop,
    Look,
    Open,
    Sharpen,
    Sight,
    Spoil,
    Tell,
)
from solution.collecting.mutants import Kind, Mutants, Site, make_mutants
from solution.programs.arguments import check_memory, list_draws
from solution.programs.child import Child, ChildDiedError, Refusal, TooMuchError
from solution.programs.program import Program
from solution.system.errors import InputError

# errors must be noticed in at least this share of the forms of products; a form: opcode and sizes
LEAST_SHARE = 0.5
SECONDS = 30.0  # time limit for running the mutants with one set of arguments
SLOWER = 50  # time limit of a mutant (it may loop forever), as a multiple of the program's time
LEAST_SECONDS = 5.0  # minimum time limit of a mutant
MOST_DEATHS = 3  # no more mutants are run if they killed the child process more often than this
SHOWN = 3  # maximum number of products named in a message
# kinds of errors that a wrong tile may cause in the last columns of a dot's result
EDGES = (Kind.SHIFT, Kind.ZERO, Kind.TWICE)
ADVICE = (
    "Give arguments for which they can: --arguments FILE.npz, with an array for each parameter by "
    "its number or name."
)
Result = TypeVar("Result")
RANDOM = (
    "Expected a program whose results repeat. Let it draw random numbers from a key that is an "
    "argument, as jax.random does, or remove them."
)


@dataclass(frozen=True)
class Set:
    """A set of arguments (one array per parameter) for which results are compared."""

    arguments: list[np.ndarray]
    sight: Sight  # how well the results for these arguments reveal errors
    is_sharp: bool = False  # compare with tightened tolerances (see child.Sharpen)


@dataclass(frozen=True)
class Examined:
    """The sets of arguments kept for a program, and the errors that a comparison would miss."""

    sets: list[Set]  # the first is also used for timing, the others only for comparisons
    compiled: Compiled  # the compiled default configuration
    note: str  # a sentence on wrong results that the comparison would not notice; usually ""


class Examiner:
    """Finds arguments for which a comparison of results notices errors in a program."""

    def __init__(self, child: Child, program: Program, *, needs_edges: bool = False) -> None:
        """Use the child process to run the program. `needs_edges`: errors in the last columns of
        every dot must be noticed, because a wrong tile makes errors there."""
        self._child, self._program, self._needs_edges = child, program, needs_edges
        self._mutants = Mutants(b"", (), 0)
        self._is_spoiled = False  # True once the child process has compiled the mutants
        self._compiled = Compiled(b"", 0.0, "")
        self._kept: list[Set] = []
        # (form of the product, kind of error) of each mutant that the comparison noticed
        self._told: set[tuple[str, Kind]] = set()
        self._deaths = 0

    def run(self) -> Examined:
        """Find the arguments for comparisons; leave the program open in the child. Raises
        InputError if the program cannot be compiled, results of two runs differ, or the comparison
        misses too many errors with all arguments that were tried."""
        name = self._program.name
        if self._program.is_drawn:
            check_memory(self._program.module, name, self._child.limits.megabytes)
        self._mutants = make_mutants(self._program.module)
        return again_if_killed(name, self._run)

    def _run(self) -> Examined:
        self._kept, self._told, sights = [], set(), []
        for arguments, is_sharp in self._list_sets():
            sights.append(self._take(arguments, is_sharp=is_sharp))
            if self._is_enough():
                break
        if not self._is_proven():
            raise InputError(
                f"{self._program.name}: its results cannot show whether a configuration is "
                f"correct: {self._explain(sights[0])}, for all arguments that were drawn. {ADVICE}"
            )
        return Examined(self._kept, self._compiled, self._describe())

    def reopen(self, examined: Examined) -> Compiled:
        """Open a program again after the child process was replaced, with the sets of arguments
        that `run` chose; return the compiled default configuration."""
        return again_if_killed(self._program.name, lambda: self._reopen(examined))

    def _reopen(self, examined: Examined) -> Compiled:
        compiled = open_program(self._child, self._program, examined.sets[0].arguments)
        for index, one in enumerate(examined.sets):
            if index:
                self._ask(Add(one.arguments))
            if one.is_sharp:
                self._ask(Sharpen(index))
        return compiled

    def _list_sets(self) -> Iterator[tuple[list[np.ndarray], bool]]:
        """Yield (arguments to try, whether to tighten the tolerances). First come the arguments of
        the program's file, if any, and drawn arguments, with normal tolerances. Last come
        `Program.arguments` with tightened tolerances."""
        if self._program.brings_some:
            yield self._program.arguments, False
        for arguments in list_draws(self._program.module, self._program.name):
            yield arguments, False
        yield self._program.arguments, True

    def _take(self, arguments: list[np.ndarray], *, is_sharp: bool) -> Sight:
        """Run the program and its mutants with these arguments; return how well the results reveal
        errors. Keep the arguments if they reveal more than earlier ones or are from the file."""
        is_first = not self._kept
        begin = time.monotonic()
        if is_first:
            self._compiled = open_program(self._child, self._program, arguments)
            self._is_spoiled = False
            sight = self._ask(Look(0))
        else:
            sight = self._ask(Add(arguments))
        seconds = time.monotonic() - begin
        known, could_differ = len(self._told), any(one.sight.can_differ for one in self._kept)
        is_finer = sight.is_finite and not any(one.sight.is_finite for one in self._kept)
        self._kept.append(Set(arguments, sight, is_sharp))
        if is_sharp:
            self._ask(Sharpen(len(self._kept) - 1))
        if sight.can_differ:
            self._tell_mutants(max(LEAST_SECONDS, SLOWER * seconds))
        is_news = len(self._told) > known or (sight.can_differ and (not could_differ or is_finer))
        if not (is_news or (is_first and self._program.brings_some)):
            self._kept.pop()
            if self._kept:
                self._ask(Drop(len(self._kept)))
        return sight

    def _tell_mutants(self, seconds: float) -> None:
        """Run each mutant whose error was not noticed yet with the newest arguments, for at most
        `seconds`."""
        if not self._mutants.sites:
            return
        deadline = time.monotonic() + SECONDS
        if not self._is_spoiled:
            self._ask(Spoil(self._mutants.module))
            self._is_spoiled = True
        for site in self._mutants.sites:
            if time.monotonic() > deadline or self._deaths > MOST_DEATHS:
                return
            for kind in self._list_looked(site):
                if self._is_told(site):
                    break
                known = (site.form, kind) in self._told
                if not known and self._tell(site.first + site.kinds.index(kind), seconds):
                    self._told.add((site.form, kind))

    def _is_told(self, site: Site) -> bool:
        """Return True if enough errors in products of the site's form were noticed. If a wrong tile
        may spoil a product's last columns, these are all kinds in `_list_looked`, else one."""
        looked = [(site.form, kind) in self._told for kind in self._list_looked(site)]
        return all(looked) if self._is_at_edge(site) else any(looked)

    def _list_looked(self, site: Site) -> list[Kind]:
        """Return the kinds of errors to try in a product: EDGES if a wrong tile may spoil its last
        columns, otherwise SHIFT and REVERSE; if the result is a single number, only ZERO."""
        kinds = EDGES if self._is_at_edge(site) else (Kind.SHIFT, Kind.REVERSE)
        return [kind for kind in kinds if kind in site.kinds] or list(site.kinds)

    def _is_at_edge(self, site: Site) -> bool:
        return self._needs_edges and site.opcode == "dot"

    def _tell(self, switch: int, seconds: float) -> bool:
        switches = np.zeros(self._mutants.switches, bool)
        switches[switch] = True
        try:
            reply = self._child.ask(Tell(len(self._kept) - 1, switches), seconds)
            if reply == Refusal(CLOSED):
                raise ChildDiedError(CLOSED)
        except ChildDiedError as error:
            self._deaths += 1
            self._restore()
            # a mutant that exceeds a limit (TooMuchError) is noticed; a killed child shows nothing
            return isinstance(error, TooMuchError)
        return reply is True

    def _restore(self) -> None:
        self._reopen(Examined(self._kept, self._compiled, ""))
        self._ask(Spoil(self._mutants.module))

    def _ask(self, request: object) -> Sight:
        reply = self._child.ask(request)
        if reply == Refusal(CLOSED):
            raise ChildDiedError(CLOSED)
        if isinstance(reply, Refusal):
            raise InputError(
                f"{self._program.name}: the test whether wrong results are noticed failed: "
                f"{reply.reason.rstrip('.')}. Expected a program that runs a few times within the "
                "limits."
            )
        sight: Sight = reply
        return sight

    @property
    def _untold(self) -> list[Site]:
        """Return a product of each form (opcode and sizes) in which errors were not noticed."""
        forms = {site.form: site for site in self._mutants.sites}
        return [site for site in forms.values() if not self._is_told(site)]

    def _is_enough(self) -> bool:
        """Return True if errors in all products were noticed, the results for some arguments are
        finite, and for some they change if their elements are reversed."""
        finite = any(one.sight.is_finite for one in self._kept)
        return finite and any(one.sight.can_differ for one in self._kept) and not self._untold

    def _is_proven(self) -> bool:
        """Return True if enough errors were noticed to trust the comparison."""
        if not any(one.sight.can_differ for one in self._kept):
            return False
        if self._needs_edges:
            return not self._untold
        forms = len({site.form for site in self._mutants.sites})
        return forms - len(self._untold) >= LEAST_SHARE * forms

    def _explain(self, first: Sight) -> str:
        if first.blindness and not self._told:
            return first.blindness
        untold = self._untold
        if not untold:
            return "they are the same in reverse order"
        return f"the output of {_name(untold)} does not change them"

    def _describe(self) -> str:
        """Return a sentence on the wrong results that the comparison would not notice, or ""."""
        words = []
        if not any(one.sight.is_finite for one in self._kept):
            words.append(f"{self._kept[0].sight.blindness}, and these are not compared")
        if self._untold:
            words.append(
                f"the output of {_name(self._untold)} does not change the results, so it is not "
                "checked"
            )
        return f"{self._program.name}: {'; '.join(words)}." if words else ""


def open_program(child: Child, program: Program, arguments: list[np.ndarray]) -> Compiled:
    """Compile and run the default configuration in the child, which keeps its results. Raises
    InputError if that fails or a second run differs."""
    reply = child.ask(Open(program.plain, arguments))
    if isinstance(reply, Refusal):
        raise _refuse(program.name, reply.reason)
    compiled: Compiled = reply
    if compiled.deviation:
        raise InputError(
            f"{program.name}: two runs with the same arguments give different results "
            f"({compiled.deviation}), so no configuration can be compared with them. {RANDOM}"
        )
    return compiled


def again_if_killed(name: str, work: Callable[[], Result]) -> Result:
    """Call `work` and return its result; call it once more if its child process dies, because the
    system or a user may have killed it. Raises InputError if the process dies twice, or exceeds a
    limit."""
    try:
        return work()
    except TooMuchError as error:
        raise _refuse(name, str(error)) from error
    except ChildDiedError:
        try:
            return work()
        except ChildDiedError as error:
            raise _refuse(name, str(error)) from error


def _refuse(name: str, reason: str) -> InputError:
    return InputError(
        f"{name}: the compiler rejects the unchanged program: {reason.rstrip('.')}. Expected a "
        "program that it compiles and runs within the limits."
    )


def _name(sites: list[Site]) -> str:
    more = f" and {len(sites) - SHOWN} others" if len(sites) > SHOWN else ""
    return ", ".join(f"{site.opcode} {site.name}" for site in sites[:SHOWN]) + more
