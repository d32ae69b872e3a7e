"""The requests to a child process about one program: compile it, compare its results, time it.

A program is open once the child process has its arguments. Each configuration's results are
compared with the default configuration's results, for one or several sets of arguments.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.collecting import comparison
from solution.programs.child import ChildRequest, Host
from solution.programs.compiler import Compiler, Executable, Flags, RefusedError
from solution.programs.hlo.messages import MESSAGES
from solution.programs.replies import Reply

CLOSED = "no program is open: this process replaces one that ended"
WARM_UPS = 2  # runs of a new executable before its results are used
IMPLAUSIBLE = 10  # a CPU time this many times below the median of the same runs is a clock error


class ProgramRequest(ChildRequest):
    """The base class of the requests about a program."""

    def answer(self, host: Host) -> Any:
        return host.find(Workshop).answer(self)


@dataclass(frozen=True)
class Open(ProgramRequest):
    """Request to store the arguments, compile the default configuration and keep its results; if
    `module` is empty, only to store the arguments. Reply: Compiled, whose `deviation` says how the
    results of two runs differ."""

    module: bytes
    arguments: Sequence[np.ndarray]


@dataclass(frozen=True)
class Add(ProgramRequest):
    """Request to add a set of arguments: run the open program with it and keep the results. Reply:
    Sight."""

    arguments: Sequence[np.ndarray]


@dataclass(frozen=True)
class SetRequest(ProgramRequest):
    """A request about one set of arguments."""

    # which set of arguments; 0: the set given to Open, 1 and up: the sets given to Add, in order
    index: int


@dataclass(frozen=True)
class Look(SetRequest):
    """Request to tell how well the results for a set of arguments reveal errors. Reply: Sight."""


@dataclass(frozen=True)
class Sharpen(SetRequest):
    """Request to tighten the tolerances for one set of arguments, as far as rounding errors allow.
    Reply: None."""


@dataclass(frozen=True)
class Drop(SetRequest):
    """Request to remove a set of arguments that was added, and its results. Reply: None."""


@dataclass(frozen=True)
class Spoil(ProgramRequest):
    """Request to compile the mutants (deliberate errors, see mutants.py). Reply: None."""

    module: bytes


@dataclass(frozen=True)
class Tell(SetRequest):
    """Request to run the mutants with some of them switched on. Reply: True if the comparison of
    results notices an error."""

    # (switches,) bool: True switches a mutant (a deliberate error, see mutants.py) on
    switches: np.ndarray


@dataclass(frozen=True)
class Compile(ProgramRequest):
    """Request to compile and run a configuration and compare its results with the default's.
    Reply: Compiled."""

    module: bytes
    flags: Flags


@dataclass(frozen=True)
class Optimise(ProgramRequest):
    """Request to compile a configuration. Reply: the serialized module after optimizations."""

    module: bytes
    flags: Flags


@dataclass(frozen=True)
class Load(ProgramRequest):
    """Request to load an executable under a key. Reply: rough wall nanoseconds of a run."""

    key: str
    executable: bytes


@dataclass(frozen=True)
class Run(ProgramRequest):
    """Request to run a loaded executable once as warm-up, then `count` times. Reply: Timings."""

    key: str
    count: int


@dataclass(frozen=True)
class Compiled(Reply):
    """A compiled configuration, and how its results differ from the default's."""

    executable: bytes
    seconds: float  # seconds that compiling took
    deviation: str  # what is wrong with the configuration's results; "" if they are right


@dataclass(frozen=True)
class Sight(Reply):
    """How well a comparison with these results reveals errors in other results."""

    blindness: str  # in words, why wrong results might go unnoticed; "" if no reason is known
    is_finite: bool  # True: no number in the results is NaN or infinite
    can_differ: bool  # True: the results change if their elements are put into reverse order


@dataclass(frozen=True)
class Timings(Reply):
    """CPU time and wall time of consecutive runs, in nanoseconds (runs,) int64."""

    cpu: np.ndarray
    wall: np.ndarray


class Workshop:
    """The state of a child process: the open program and the loaded executables."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        # sets of arguments: first the set given to Open, then the sets given to Add
        self._arguments: list[list[Any]] = []
        # for each set of arguments: the results of the default configuration
        self._expected: list[list[np.ndarray]] = []
        # for each set of arguments: the relative tolerance of each result
        self._tolerances: list[list[float]] = []
        # for each set of arguments: a mask of the numbers not to compare, for each result
        self._doubtful: list[list[np.ndarray]] = []
        # True: rounding errors may change results by any amount, see comparison.can_jump
        self._can_jump = False
        self._plain: Executable | None = None  # the compiled default configuration
        self._mutants: Executable | None = None  # all mutants in one executable
        self._loaded: dict[str, Executable] = {}
        self._answers: dict[type, Callable[[Any], Any]] = {
            Open: self._open,
            Add: self._add,
            Look: self._look,
            Sharpen: self._sharpen,
            Drop: self._drop,
            Spoil: self._spoil,
            Tell: self._tell,
            Compile: self._compile,
            Optimise: self._optimise,
            Load: self._load,
            Run: self._run,
        }

    def answer(self, request: ProgramRequest) -> Any:
        """Return the reply to a request. Raises RefusedError if the request needs an open program
        and there is none."""
        if not self._arguments and not isinstance(request, Open | Optimise):
            raise RefusedError(CLOSED)
        return self._answers[type(request)](request)

    def _open(self, request: Open) -> Compiled:
        self._arguments = [self._compiler.place(request.arguments)]
        self._expected, self._tolerances, self._plain, self._mutants = [], [], None, None
        self._doubtful.clear()
        self._loaded.clear()
        if not request.module:  # this process will only run executables compiled elsewhere
            return Compiled(b"", 0.0, "")
        self._plain, seconds = self._build(request.module, Flags())
        self._can_jump = comparison.can_jump(MESSAGES["Module"].FromString(request.module))
        self._keep(self._arguments[0])
        again = comparison.find_deviation(self._plain.run(self._arguments[0]), self._expected[0])
        return Compiled(self._plain.serialize(), seconds, again)

    def _add(self, request: Add) -> Sight:
        assert self._plain is not None
        self._arguments.append(self._compiler.place(request.arguments))
        self._keep(self._arguments[-1])
        return self._look(Look(len(self._arguments) - 1))

    def _keep(self, placed: list[Any]) -> None:
        """Run the default configuration with a set of arguments; store its results, their
        tolerances, and masks of the numbers that are not compared."""
        plain = self._plain
        assert plain is not None
        self._expected.append(plain.run(placed))
        self._tolerances.append(comparison.find_tolerances(self._expected[-1]))
        self._doubtful.append([])
        if self._can_jump:
            given = [np.asarray(array) for array in placed]
            self._doubtful[-1] = comparison.find_doubtful(
                lambda nudged: plain.run(self._compiler.place(nudged)), given, self._expected[-1]
            )

    def _look(self, request: Look) -> Sight:
        results = self._expected[request.index]
        is_finite = all(bool(np.isfinite(result.astype(np.complex128)).all()) for result in results)
        turned, doubtful = [_turn(result) for result in results], self._doubtful[request.index]
        can_differ = comparison.can_tell_apart(turned, results, doubtful=doubtful)
        return Sight(comparison.describe_blindness(results), is_finite, can_differ)

    def _drop(self, request: Drop) -> None:
        for kept in (self._arguments, self._expected, self._tolerances, self._doubtful):
            del kept[request.index]

    def _sharpen(self, request: Sharpen) -> None:
        assert self._plain is not None
        given = [np.asarray(array) for array in self._arguments[request.index]]
        shaken = self._plain.run(self._compiler.place(comparison.shake(given)))
        self._tolerances[request.index] = comparison.sharpen(shaken, self._expected[request.index])

    def _spoil(self, request: Spoil) -> None:
        self._mutants, _ = self._build(request.module, Flags())

    def _tell(self, request: Tell) -> bool:
        assert self._mutants is not None
        (switches,) = self._compiler.place([request.switches])
        index = request.index
        wrong = self._mutants.run([*self._arguments[index], switches])
        expected, tolerances = self._expected[index], self._tolerances[index]
        return comparison.can_tell_apart(wrong, expected, tolerances, self._doubtful[index])

    def _compile(self, request: Compile) -> Compiled:
        executable, seconds = self._build(request.module, request.flags)
        deviation = self._find_deviation(executable)
        return Compiled(executable.serialize() if not deviation else b"", seconds, deviation)

    def _find_deviation(self, executable: Executable) -> str:
        """Return how an executable's results for a set of arguments differ from the default's; ""
        if they agree for all sets."""
        for index, arguments in enumerate(self._arguments):
            found, expected = executable.run(arguments), self._expected[index]
            tolerances, doubtful = self._tolerances[index], self._doubtful[index]
            defect = comparison.find_deviation(found, expected, tolerances, doubtful)
            if defect:
                return f"with other arguments: {defect}" if index else defect
        return ""

    def _optimise(self, request: Optimise) -> bytes:
        return self._build(request.module, request.flags)[0].optimised()

    def _build(self, module: bytes, flags: Flags) -> tuple[Executable, float]:
        begin = time.perf_counter()
        executable = self._compiler.compile(module, flags)
        return executable, time.perf_counter() - begin

    def _load(self, request: Load) -> int:
        executable = self._compiler.load(request.executable)
        self._loaded[request.key] = executable
        return int(min(self._time(executable, WARM_UPS).wall))

    def _run(self, request: Run) -> Timings:
        executable = self._loaded[request.key]
        # untimed, because the CPU's caches still hold another program's data
        executable.call(self._arguments[0])
        return self._time(executable, request.count)

    def _time(self, executable: Executable, count: int) -> Timings:
        cpu, wall = np.empty(count, np.int64), np.empty(count, np.int64)
        for run in range(count):
            wall_begin, cpu_begin = time.perf_counter_ns(), time.process_time_ns()
            results = executable.call(self._arguments[0])
            cpu[run] = time.process_time_ns() - cpu_begin
            wall[run] = time.perf_counter_ns() - wall_begin
            del results  # free them outside of the timed part
        if not cpu.any():  # no CPU times are available: use the wall times
            return Timings(wall, wall)
        kept = find_plausible(cpu)
        return Timings(cpu[kept], wall[kept])


def find_plausible(cpu: np.ndarray) -> np.ndarray:
    """Return a mask (runs,) of the plausible CPU times: at least one if any is above 0. A virtual
    machine may wrongly report a time near 0, which would become the label (see timing.py)."""
    # above 0, and at least a tenth of the median
    return np.asarray((cpu > 0) & (IMPLAUSIBLE * cpu >= np.median(cpu)))


def _turn(result: np.ndarray) -> np.ndarray:
    """Return the result with all elements in reverse order; for a single number return 0."""
    if result.size == 1:
        return np.zeros_like(result)
    return result.ravel()[::-1].reshape(result.shape)
