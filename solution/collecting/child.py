"""What happens in the child processes: programs are compiled, compared and run there.

A compiler may abort, take all memory or never end, and then only a child is lost. Each request is
a value of a class below; the reply is the result, or a Refusal that says why there is none.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.comparison import find_deviation
from solution.collecting.compiler import Compiler, Executable, Flags, RefusedError
from solution.programs.forms import STABLEHLO
from solution.system.errors import InputError

WARM_UPS = 2  # runs before a new executable is looked at
IMPLAUSIBLE = 10  # so many times faster than the median of its visit is no run


@dataclass(frozen=True)
class Refusal:
    """Why there is no result."""

    reason: str
    is_input: bool = False  # the user's file is to blame


@dataclass(frozen=True)
class Lower:
    """Reply: the module's bytes and the arguments, or none, by name of the program."""

    path: Path


@dataclass(frozen=True)
class Parse:
    """Reply: the bytes of a module, which stands in a text or in bytecode."""

    form: str  # of solution.programs.forms
    content: str | bytes
    function: str = ""  # of StableHLO, that is the program; empty: main, or the only one


@dataclass(frozen=True)
class Open:
    """Take a program's arguments, compile it as it is, and keep its results. Reply: Compiled."""

    module: bytes
    arguments: Sequence[np.ndarray]


@dataclass(frozen=True)
class Compile:
    """Compile a configuration, run it, compare its results with the kept ones. Reply: Compiled."""

    module: bytes
    flags: Flags


@dataclass(frozen=True)
class Optimise:
    """Compile a configuration. Reply: the bytes of the module that is run in the end."""

    module: bytes
    flags: Flags


@dataclass(frozen=True)
class Load:
    """Take an executable. Reply: nanoseconds of wall time that a run takes about."""

    key: str
    executable: bytes


@dataclass(frozen=True)
class Run:
    """Run a loaded executable, once without looking and `count` times with. Reply: Timings."""

    key: str
    count: int


@dataclass(frozen=True)
class Compiled:
    """What became of a configuration."""

    executable: bytes
    seconds: float  # that compiling it took
    deviation: str  # what is wrong with its results; empty where they are right


@dataclass(frozen=True)
class Timings:
    """Nanoseconds (runs,) int64: of the process's CPU time, and on the clock."""

    cpu: np.ndarray
    wall: np.ndarray


def serve(connection: Connection, errors: Path, core: int | None) -> None:
    """Answer requests until the other end closes; first, tell the platform and the core."""
    redirect(errors)
    pinned = core is not None and _pin(core)
    try:
        compiler = Compiler()
    except Exception as error:
        connection.send(Refusal(str(error), is_input=isinstance(error, InputError)))
        return
    connection.send((compiler.platform, pinned))
    workshop = Workshop(compiler)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(workshop.answer(request))


class Workshop:
    """The state of a child: the program that is open, and the executables that are loaded."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._arguments: list[Any] = []
        self._expected: list[np.ndarray] = []
        self._loaded: dict[str, Executable] = {}
        self._answers: dict[type, Callable[[Any], Any]] = {
            Lower: self._lower,
            Parse: self._parse,
            Open: self._open,
            Compile: self._compile,
            Optimise: self._optimise,
            Load: self._load,
            Run: self._run,
        }

    def answer(self, request: Any) -> Any:
        """The result of a request, or a Refusal."""
        try:
            return self._answers[type(request)](request)
        except (RefusedError, InputError) as error:
            return Refusal(str(error), is_input=isinstance(error, InputError))
        except Exception as error:
            return Refusal(f"{type(error).__name__}: {error}"[:500])

    def _lower(self, request: Lower) -> Any:
        from solution.collecting.program_file import lower_file

        return lower_file(self._compiler, request.path)

    def _parse(self, request: Parse) -> bytes:
        if request.form == STABLEHLO:
            return self._compiler.parse_stablehlo(request.content, request.function)
        return self._compiler.parse_hlo(str(request.content))

    def _open(self, request: Open) -> Compiled:
        self._arguments = self._compiler.place(request.arguments)
        self._loaded.clear()
        if not request.module:  # only to run what others compiled
            return Compiled(b"", 0.0, "")
        executable, seconds = self._build(request.module, Flags())
        self._expected = executable.run(self._arguments)
        return Compiled(executable.serialize(), seconds, "")

    def _compile(self, request: Compile) -> Compiled:
        executable, seconds = self._build(request.module, request.flags)
        deviation = find_deviation(executable.run(self._arguments), self._expected)
        return Compiled(executable.serialize() if not deviation else b"", seconds, deviation)

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
        executable.call(self._arguments)  # caches hold another program's data
        return self._time(executable, request.count)

    def _time(self, executable: Executable, count: int) -> Timings:
        cpu, wall = np.empty(count, np.int64), np.empty(count, np.int64)
        for place in range(count):
            wall_begin, cpu_begin = time.perf_counter_ns(), time.process_time_ns()
            results = executable.call(self._arguments)
            cpu[place] = time.process_time_ns() - cpu_begin
            wall[place] = time.perf_counter_ns() - wall_begin
            del results  # freeing them is not the program's work
        if not cpu.any():  # then the clock on the wall is all there is
            return Timings(wall, wall)
        kept = find_plausible(cpu)
        return Timings(cpu[kept], wall[kept])


def find_plausible(cpu: np.ndarray) -> np.ndarray:
    """Which runs (runs,) the process's clock can have measured: at least one, where any took time.

    On a virtual machine it leaves out what it believes was stolen meanwhile, and so may say of a
    run that it took nothing, or next to nothing: as the smallest of a half's times it would count.
    """
    return np.asarray((cpu > 0) & (IMPLAUSIBLE * cpu >= np.median(cpu)))


def redirect(errors: Path) -> None:
    """What the compiler prints goes to a file, whose end says why it died."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _pin(core: int) -> bool:
    """Stay on one core, before XLA counts them; False where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    return True
