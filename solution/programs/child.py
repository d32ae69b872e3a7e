"""Run the compiler in a child process; end the process if it exceeds a limit.

A compiler may abort, take all memory or hang; then only the child process is lost. A request is an
instance of a class whose method `answer` runs in the child. The reply is the method's result, or a
Refusal with the reason why there is no result.
"""

import os
import re
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil

from solution.programs.compiler import Compiler, RefusedError
from solution.programs.replies import MARK, Reply, decode_reply, send_reply
from solution.system.errors import InputError
from solution.system.files import take_lock
from solution.system.processes import SPAWN, start_child
from solution.system.scratch import ScratchFolder, find_base

WATCH_SECONDS = 0.02  # seconds between two checks of a child's memory
# Finds the limit that was exceeded in the words of Limits.
EXCEEDED = re.compile(r"it took more than ([\d.,e+-]+) (seconds?|MB)")
START_SECONDS = 300.0  # limit for the start of a child, which takes two seconds on an idle machine
# Patterns of XLA's messages before it ends the process because of an error in XLA_FLAGS.
UNKNOWN_FLAGS = re.compile(r"Unknown flags? in XLA_FLAGS: (.*\S)")
WRONG_VALUE = re.compile(r"Couldn't interpret value (\S*) for flag (\S+)")
NO_FLAGS_FILE = re.compile(r"Could not open file (\".*?\") to read flags .*\"XLA_FLAGS\"")
# A message begins with its size in 4 bytes; if these hold LONG, 8 bytes with the size follow.
LONG = -1
LAST_LINES = 4000  # number of bytes at the end of a child's output that are searched for an error
State = TypeVar("State")


@dataclass(frozen=True)
class Refusal(Reply):
    """A reply that states why there is no result."""

    reason: str
    is_input: bool = False  # True: the user's file or settings are the cause


class Host:
    """The compiler in a child process, and a cache of objects that several requests share."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._states: dict[Callable[[Compiler], Any], Any] = {}

    def find(self, make: Callable[[Compiler], State]) -> State:
        """Return `make(compiler)`; call each function `make` only once."""
        if make not in self._states:
            self._states[make] = make(self.compiler)
        return cast(State, self._states[make])


class ChildRequest(ABC):
    """Work for a child process: a picklable request that the child answers."""

    @abstractmethod
    def answer(self, host: Host) -> Any:
        """Do the work in the child; return the reply (of a type that `send_reply` takes), or raise
        RefusedError or InputError."""


def serve(connection: Connection, errors: Path, core: int | None) -> None:
    """The child's main function: redirect its output to the file `errors`; send (platform, whether
    the process is pinned to `core`); answer requests until the connection closes."""
    redirect(errors)
    keep_to_itself()
    pinned = core is not None and _pin(core)
    try:
        compiler = Compiler()
    except Exception as error:
        send_reply(connection, Refusal(str(error), is_input=isinstance(error, InputError)))
        return
    send_reply(connection, (compiler.platform, pinned))
    host = Host(compiler)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        send_reply(connection, _answer(request, host))


def _answer(request: ChildRequest, host: Host) -> Any:
    """Return the result of a request, or a Refusal if the request raises an error."""
    try:
        return request.answer(host)
    except (RefusedError, InputError) as error:
        return Refusal(str(error), is_input=isinstance(error, InputError))
    except Exception as error:
        return Refusal(f"{type(error).__name__}: {error}"[:500])


class ChildDiedError(Exception):
    """A child process ended, or was ended, before it answered; the message says why."""


class TooMuchError(ChildDiedError):
    """A child exceeded a memory or time limit; a second attempt would exceed it, too."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request to a child."""

    seconds: float = 60.0
    megabytes: int = 4096

    def describe_seconds(self, seconds: float | None = None) -> str:
        """Return why a request was ended that took longer than `seconds` (default: the limit)."""
        most = self.seconds if seconds is None else seconds
        return f"it took more than {most:g} second{'' if most == 1 else 's'}"

    def describe_megabytes(self) -> str:
        """Return why a request was ended that took more memory than the limit."""
        return f"it took more than {self.megabytes:,} MB of memory"

    def are_above(self, reason: str) -> bool:
        """Return True if a request failed for this `reason` (see describe_seconds and
        describe_megabytes) because a lower limit than these was exceeded."""
        found = EXCEEDED.search(reason)
        if found is None:
            return False
        limit = self.megabytes if found[2] == "MB" else self.seconds
        return float(found[1].replace(",", "")) < limit


class Child:
    """A process that compiles and runs programs; if it ended, the next request starts a new one."""

    def __init__(
        self,
        limits: Limits,
        core: int | None = None,
        work: Callable[[Connection, Path, int | None], None] = serve,
    ) -> None:
        """Prepare a process, which starts at the first request. `limits`: of each request. `core`:
        the process is pinned to it (None: not pinned). `work` (connection, output file, core): the
        main function, which first sends (platform, whether pinned) or a Refusal."""
        self.limits = limits
        self.core = core
        self._work = work
        self.platform, self.pinned = "", False
        # True: a user's Python file ran in the process and may have changed its state
        self.has_run_python = False
        self._folder = ScratchFolder()
        self._errors = self._folder.path / "printed.txt"
        self._errors.touch()
        self._said = 0  # size of the output file at the start of the current request
        self._process: Any = None
        self._connection: Connection | None = None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def ask(self, request: Any, seconds: float | None = None) -> Any:
        """Send a request and return its result or a Refusal, within `seconds` (default:
        `limits.seconds`). Raises ChildDiedError if the child ended or exceeded a limit; InputError
        if the user's file is the cause, jax is missing, or the process does not start in
        START_SECONDS."""
        if not self.is_alive:
            self._start()
        self._said = self._errors.stat().st_size
        assert self._connection is not None
        try:
            self._connection.send(request)
        except OSError as error:
            raise ChildDiedError(self._bury(self._last_words())) from error
        return self._receive(seconds or self.limits.seconds)

    def end(self) -> None:
        """End the process and its descendants; the next request starts a new one."""
        if self._process is not None:
            with suppress(psutil.Error):  # the process has ended already
                for started in psutil.Process(self._process.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        started.kill()
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def close(self) -> None:
        """End the process, and delete its output file."""
        self.end()
        self._folder.remove()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self.end()
        self.has_run_python = False
        self._said = 0  # the new process empties the output file
        self._connection, other = SPAWN.Pipe()
        # Spawn instead of fork, so that the child inherits no memory of this process.
        self._process = start_child(self._work, other, self._errors, self.core, context=SPAWN)
        other.close()
        try:
            reply = self._receive(START_SECONDS)
        except TooMuchError as error:
            raise InputError(
                f"The process that reads, compiles and runs programs did not start: {error}. No "
                "file is to blame: the machine is too busy, or its limit of memory is too small "
                "for the compiler alone. Run the same command again when other programs have ended."
            ) from error
        if isinstance(reply, Refusal):
            raise InputError(reply.reason)
        self.platform, self.pinned = reply

    def _receive(self, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        try:
            reply = self._read_reply(deadline, seconds)
        except (EOFError, OSError) as error:
            raise ChildDiedError(self._bury(self._last_words())) from error
        if isinstance(reply, Refusal) and reply.is_input:
            raise InputError(reply.reason)
        return reply

    def _read_reply(self, deadline: float, seconds: float) -> Any:
        """Read a reply before the deadline; `seconds`, the time limit, appears only in error
        messages. The program under test may write to the connection, too, so only a message of the
        announced size that begins with MARK counts as a reply."""
        (size,) = struct.unpack("!i", self._read(4, deadline, seconds))
        if size == LONG:
            (size,) = struct.unpack("!Q", self._read(8, deadline, seconds))
        begin = self._read(len(MARK), deadline, seconds) if size > len(MARK) else b""
        if begin == MARK:
            content = self._read(size - len(MARK), deadline, seconds)
            with suppress(ValueError):
                return decode_reply(content)
        raise ChildDiedError(
            self._bury("the program wrote into a channel that it inherited and did not open")
        )

    def _read(self, count: int, deadline: float, seconds: float) -> bytearray:
        assert self._connection is not None
        found = bytearray()
        while len(found) < count:
            self._wait(deadline, seconds)
            part = os.read(self._connection.fileno(), count - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def _wait(self, deadline: float, seconds: float) -> None:
        """Wait for data; end the child if it exceeds its memory or time limit meanwhile."""
        assert self._connection is not None
        while not self._connection.poll(WATCH_SECONDS):
            if time.monotonic() > deadline:
                raise TooMuchError(self._bury(self.limits.describe_seconds(seconds)))
            if self._memory() > self.limits.megabytes:
                raise TooMuchError(self._bury(self.limits.describe_megabytes()))
            if not self._process.is_alive() and not self._connection.poll():
                raise ChildDiedError(self._bury(self._last_words()))

    def _memory(self) -> float:
        try:
            return float(psutil.Process(self._process.pid).memory_info().rss / 2**20)
        except psutil.Error:
            return 0.0

    def _bury(self, reason: str) -> str:
        """End the process, and return `reason`, so that a caller can put it into an error."""
        self.end()
        return reason

    def _last_words(self) -> str:
        """Return the compiler's last error or exit code; InputError if XLA rejects XLA_FLAGS."""
        self._process.join(1)
        printed = self._errors.read_bytes()[self._said :]
        if defect := find_flag_defect(printed.decode(errors="replace")):
            self.end()
            raise InputError(defect)
        words = find_last_words(printed[-LAST_LINES:])
        return words or f"the process ended with {self._process.exitcode}"


def find_last_words(printed: bytes) -> str:
    """Return the last error in the output of a compiler's process; "" if there is none."""
    for line in reversed(printed.decode(errors="replace").splitlines()):
        for word in ("Check failed: ", "LLVM ERROR: ", "Error: "):
            if word in line:
                return line[line.index(word) :][:300]
    return ""


def find_flag_defect(printed: str) -> str:
    """Return what is wrong with XLA_FLAGS according to XLA's output; "" if nothing is."""
    advice = "Take it out, or unset XLA_FLAGS; the file is not to blame."
    for line in printed.splitlines():
        if found := UNKNOWN_FLAGS.search(line):
            return f"XLA does not know {found[1]} in the environment variable XLA_FLAGS. {advice}"
        if found := WRONG_VALUE.search(line):
            return (
                f"XLA cannot read the value {found[1]} of --{found[2].rstrip('.')} in the "
                f"environment variable XLA_FLAGS. {advice}"
            )
        if found := NO_FLAGS_FILE.search(line):
            return (
                f"XLA takes the environment variable XLA_FLAGS, {found[1]}, for the name of a file "
                f"that is not there: a flag begins with --. {advice}"
            )
    return ""


def choose_core() -> int | None:
    """Return the least busy core that this process may use; None if processes cannot be pinned."""
    return next(iter(list_cores()), None)


def list_cores() -> list[int]:
    """Return the cores that this process may use, least busy first; [] if it cannot be pinned."""
    process = psutil.Process()
    if not hasattr(process, "cpu_affinity"):  # macOS cannot pin processes
        return []
    loads = psutil.cpu_percent(interval=0.3, percpu=True)
    allowed = [core for core in process.cpu_affinity() if core < len(loads)]
    return sorted(allowed, key=lambda core: loads[core])


@contextmanager
def lease_core() -> Iterator[int | None]:
    """Yield the least busy core that no other process of this user has locked, and lock it for the
    block. If all cores are locked, yield the least busy one; None if processes cannot be pinned."""
    cores = list_cores()
    for core in cores:
        path = find_base() / f"fastslow-core-{os.getuid()}-{core}"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            if take_lock(descriptor):
                yield core
                return
        finally:
            os.close(descriptor)
    # all cores are locked: share one, and the timings will show the noise
    yield next(iter(cores), None)


def redirect(errors: Path) -> None:
    """Redirect this process's output to a file. If the compiler ends the process, the end of the
    file says why."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def keep_to_itself() -> None:
    """Redirect the channel to multiprocessing's resource tracker, which this process inherited, to
    /dev/null, so that a user's program that runs here cannot write to the tracker."""
    tracker = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
    if tracker is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, tracker)
        os.close(nothing)


def _pin(core: int) -> bool:
    """Pin the process to one core, before XLA counts cores; return True if that succeeded."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    return True
