"""The process that compiles for a TPU: it forks once for each compilation.

The process has loaded libtpu and opened a topology (the description of the chips), which takes
1.5 s. Each compilation runs in a forked copy of it. If a copy crashes, hangs or uses too much
memory, only one compilation is lost, and no compilation affects another.

The passes over HLO, after which layouts, copies of tensors and kernels are known, take a small part
of a compilation; the rest generates machine code. If only the passes are requested, the forked copy
is ended as soon as the compiler has dumped their result.
"""

import ctypes
import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from solution.collecting.tpu.libtpu import (
    GENERATED,
    GENERATED_ENDS,
    PASSED,
    PASSED_ENDS,
    Devices,
    EntryLayouts,
    Libtpu,
    Option,
    prepare_environment,
)
from solution.collecting.tpu.target import TpuTarget
from solution.programs.child import Limits, Refusal, find_last_words, redirect
from solution.programs.compiler import RefusedError
from solution.programs.replies import Reply, send_reply
from solution.system.errors import InputError

DEFAULT_LIMITS = Limits(seconds=600.0, megabytes=8192)  # limits of one compilation
LOOK_SECONDS = 0.003  # seconds between two checks for the compiler's dumps
# A forked copy may hang at its start (idle for IDLE_SECONDS); then up to FORKS copies are tried.
FORKS, IDLE_SECONDS = 3, 60.0
IDLE = f"the compiler did nothing for {IDLE_SECONDS:.0f} seconds"
MEMORY_LOOKS = 10  # memory and idleness are checked once per this number of checks for dumps
DIE_WITH_PARENT = 1  # prctl's option PR_SET_PDEATHSIG: send a signal when the parent ends
LAST_BYTES = 8000  # bytes read from the end of the compiler's output
# Files in the folder of a forked process: why the compiler refused, and what the process printed.
REFUSED = "refused.txt"
PRINTED = "printed.txt"


@dataclass(frozen=True)
class Request:
    """A request for a compilation."""

    module: bytes  # a serialized HloModuleProto
    options: tuple[Option, ...] = ()
    devices: Devices = field(default_factory=Devices)
    # layouts of parameters and results; by default those that the chip chooses
    layouts: EntryLayouts | None = None
    # False: run only the passes over HLO
    is_full: bool = True
    # True: pause the process after the passes; a full request for the same module can continue it
    is_paused: bool = False
    # True: the module holds kernels that the passes have optimised already; only generate code
    is_optimised: bool = False
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True)
class Compilation(Reply):
    """The compiler's output, as serialized messages OptimisedModule, or why there is none."""

    passed: bytes = b""  # module after the passes over HLO, with its buffers
    generated: bytes = b""  # module after code generation, with estimated cycles; only if requested
    refused: str = ""  # why there is no output
    processor_seconds: float = 0.0
    # True: it idled or exceeded a limit, or the forking process died; a retry may succeed
    is_by_chance: bool = False


def serve_tpu(
    connection: Connection, errors: Path, core: int | None, *, target: TpuTarget, folder: Path
) -> None:
    """Answer each Request with a Compilation until the other end closes the connection.

    Args:
        errors: file that receives what this process prints.
        core: not used; the operating system spreads parallel compilations over the cores.
        folder: for the compiler's logs and dumps; the process that starts this one removes it.
    """
    redirect(errors)
    prepare_environment(folder)
    try:
        compiler = Libtpu(target)
    except Exception as error:
        send_reply(connection, Refusal(str(error), is_input=isinstance(error, InputError)))
        return
    send_reply(connection, (target.name, False))
    copies = Copies(compiler, folder)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        send_reply(connection, copies.answer(request))


@dataclass
class Copy:
    """A forked process that runs one compilation, or continues a paused one."""

    number: int  # process id; 0 after the process has ended by itself
    request: Request
    folder: Path
    counted: float = 0.0  # processor seconds that earlier answers have reported already


class Copies:
    """Runs each compilation in a forked process. The last process may be kept, paused after the
    passes over HLO, so that a full request for the same module can continue it."""

    def __init__(self, compiler: Libtpu, parent: Path) -> None:
        self._compiler, self._parent = compiler, parent
        self._paused: Copy | None = None

    def answer(self, request: Request) -> Compilation:
        """Compile as requested; if the forked process idles too long, retry with a new one."""
        begin = time.process_time()
        resumed = None if request.is_optimised else self._resume(request)
        copy, seconds = resumed or self._fork(request), 0.0
        for left in reversed(range(FORKS)):
            why, spent = _watch(copy)
            seconds += spent - copy.counted
            if why != IDLE or not left:
                break
            shutil.rmtree(copy.folder, ignore_errors=True)
            copy = self._fork(request)
        passed, generated = (_read(copy.folder, name) for name in (PASSED, GENERATED))
        is_by_chance, wanted = bool(why), generated if request.is_full else passed
        if not why and not wanted:
            why = _read_text(copy.folder / REFUSED) or _find_last_words(copy.folder / PRINTED)
        if request.is_paused and not why and copy.number:  # the forked process is still alive
            copy.counted = spent
            self._paused = copy
        else:
            shutil.rmtree(copy.folder, ignore_errors=True)
        # processor time of this process, for forking and watching
        seconds += time.process_time() - begin
        generated = generated if request.is_full else b""
        return Compilation(passed, generated, why, seconds, is_by_chance)

    def _resume(self, request: Request) -> Copy | None:
        """Continue the paused process and return it, if there is one and it compiles the requested
        module. Otherwise end it and return None."""
        copy, self._paused = self._paused, None
        if copy is None:
            return None
        if replace(copy.request, is_full=True, is_paused=False) == request:
            copy.request = request
            with suppress(ProcessLookupError):  # in case the paused process has ended already
                os.kill(copy.number, signal.SIGCONT)
            return copy
        _end(copy.number)
        shutil.rmtree(copy.folder, ignore_errors=True)
        return None

    def _fork(self, request: Request) -> Copy:
        folder = Path(tempfile.mkdtemp(dir=self._parent))
        number = os.fork()
        if number == 0:
            _compile_and_exit(self._compiler, request, folder)
        return Copy(number, request, folder)


def _compile_and_exit(compiler: Libtpu, request: Request, folder: Path) -> None:
    """Compile in the forked process, then exit; this function never returns. The forked process is
    killed if its parent ends."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        redirect(folder / PRINTED)
        if request.is_optimised:
            compiler.generate(request.module, request.options, folder)
        else:
            compiler.compile(
                request.module, request.options, request.devices, request.layouts, folder
            )
        status = 0
    except RefusedError as error:
        (folder / REFUSED).write_text(str(error), encoding="utf-8")
    except BaseException as error:
        (folder / REFUSED).write_text(f"{type(error).__name__}: {error}"[:300], encoding="utf-8")
    finally:
        os._exit(status)


def _watch(copy: Copy) -> tuple[str, float]:
    """Wait until a forked process has dumped the requested module, then pause or end it.

    Returns:
        Why the process was ended before it dumped the module ("" if it was not), and the processor
        seconds that it has used so far.
    """
    request, limits, number = copy.request, copy.request.limits, copy.number
    ends = GENERATED_ENDS if request.is_full else PASSED_ENDS
    deadline = time.monotonic() + limits.seconds
    why, looks, worked = "", 0, Worked()
    while not why:
        done, _, usage = os.wait4(number, os.WNOHANG)
        if done:
            copy.number = 0  # forget the number: another process may get it
            return why, usage.ru_utime + usage.ru_stime
        if _find(copy.folder, ends) is not None:
            break
        looks += 1
        if time.monotonic() > deadline:
            why = limits.describe_seconds()
        elif looks % MEMORY_LOOKS == 0 and _measure_memory(number) > limits.megabytes:
            why = limits.describe_megabytes()
        elif looks % MEMORY_LOOKS == 0 and worked.look(number) > IDLE_SECONDS:
            why = IDLE
        else:
            time.sleep(LOOK_SECONDS)
    if request.is_paused and not why:
        os.kill(number, signal.SIGSTOP)
        times = psutil.Process(number).cpu_times()
        return why, times.user + times.system
    return why, _end(number)


def _end(number: int) -> float:
    """End a forked process, and return the processor seconds that it used."""
    if not number:
        return 0.0
    os.kill(number, signal.SIGKILL)
    _, _, usage = os.wait4(number, 0)
    return usage.ru_utime + usage.ru_stime


class Worked:
    """Tracks when a process last used the processor."""

    def __init__(self) -> None:
        self._ticks, self._moment = "", time.monotonic()

    def look(self, number: int) -> float:
        """Return for how many seconds the process `number` has used no processor time."""
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        ticks = " ".join(fields[11:13])  # ticks of user and of system time
        if ticks != self._ticks:
            self._ticks, self._moment = ticks, time.monotonic()
        return time.monotonic() - self._moment


def _measure_memory(number: int) -> float:
    """Return the megabytes of memory that a process does not share with others."""
    try:
        fields = Path(f"/proc/{number}/statm").read_text().split()
    except OSError:
        return 0.0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _find(folder: Path, end: str) -> Path | None:
    """Return the dump whose name ends with `end`; the first one by name if there are several."""
    return min(folder.glob(f"*.{end}"), default=None)


def _read(folder: Path, end: str) -> bytes:
    path = _find(folder, end)
    return path.read_bytes() if path else b""


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _find_last_words(path: Path) -> str:
    """Return the last error that the compiler printed before its process ended."""
    printed = path.read_bytes()[-LAST_BYTES:] if path.is_file() else b""
    return find_last_words(printed) or "the compiler's process ended without a word"
