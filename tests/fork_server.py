"""A fork server: imports what a program needs, then forks that program whenever it is asked.

    python tests/fork_server.py LISTENER PROGRAM MODULE... [-- MODULE...]

It ends with its standard input. Each call is a connection to the socket LISTENER, from
tests/fork_client.py. The program is the unmodified script that pip installed, run in a fork of this
process as Python runs it; only the named modules are there already. One that reads the environment
while it is imported must not be among them; what they add to it, each program finds there, as if it
had imported them. The server tells the caller how the program ended, and kills the program when the
caller is gone. To fork takes longer than much of what is forked: all memory of the modules is
listed anew. So there is no process in between.

After `--` stand the modules of workers: where a program trains in several processes, these come
from one server of multiprocessing's for all programs, not from one that each would begin anew.

No Python thread may run here, for a fork copies a lock and not the thread that would release it.
Those that numpy and polars begin sleep until they are used, and both expect forks.
"""

import ast
import atexit
import fcntl
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

# Read while Python or a library starts: a fork cannot take other values over.
AT_START = ("PYTHON", "LD_", "OMP_")
READ_LATER = "PYTHONBREAKPOINT"
WORKERS = "workers"  # the file beside the socket with the number of the server of workers
Call = tuple[dict[str, Any], list[int]]  # what is asked, and the files that came with it


@dataclass
class Begun:
    """A program that was forked."""

    number: int
    connection: socket.socket  # to who called it; when that is closed, so is the program
    end: int  # a pipe whose other end the program alone holds, for as long as it runs
    has_ended: bool = False  # and its caller knows

    def fileno(self) -> int:
        """What is waited for: its end, and then that the caller asks how it ended."""
        return self.connection.fileno() if self.has_ended else self.end

    def settle(self) -> None:
        """Tell how it ended; until that is asked its number is no other program's."""
        with suppress(ConnectionError):
            self.connection.recv(1)
        _, status = os.waitpid(self.number, 0)
        tell(os.waitstatus_to_exitcode(status), self.connection)
        self.forget()

    def forget(self) -> None:
        """Close what leads to it."""
        self.connection.close()
        os.close(self.end)


def serve(listener: socket.socket) -> Call:
    """Take calls, and tell how their programs end; returns in each program."""
    begun: list[Begun] = []
    while True:
        callers = [program.connection for program in begun if not program.has_ended]
        ready, _, _ = select.select([listener, sys.stdin, *begun, *callers], [], [])
        if sys.stdin in ready:  # the tests have ended
            for program in begun:
                os.kill(program.number, signal.SIGKILL)
            os._exit(0)
        for program in list(begun):
            if program.has_ended and program in ready:
                program.settle()
                begun.remove(program)
            elif program in ready:
                program.has_ended = True
                tell(program.number, program.connection)
            elif program.connection in ready:  # nothing is asked yet: the caller is gone
                os.kill(program.number, signal.SIGKILL)
                program.has_ended = True
        if listener in ready:
            connection, _ = listener.accept()
            call = read_call(connection)
            if call is None:
                connection.close()
            elif program := begin(call, connection):
                begun.append(program)
            else:  # this is the program
                listener.close()
                for other in begun:
                    other.forget()
                return call


def begin(call: Call, connection: socket.socket) -> Begun | None:
    """Fork the program and tell its number; None in the program."""
    asked, files = call
    end, running = os.pipe()
    running = move(running, asked["numbers"])
    number = fork()
    if number == 0:
        connection.close()
        os.close(end)
        return None
    for file in (*files, running):
        os.close(file)
    with suppress(OSError):  # it does so as well: whoever comes first
        os.setpgid(number, asked["group"])
    tell(number, connection)
    return Begun(number, connection, end)


def fork() -> int:
    """Begin a copy of this process; it finds 0."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return os.fork()  # later Pythons warn of any thread, also of those that sleep


def read_call(connection: socket.socket) -> Call | None:
    """Receive what is asked: one value on a line; None where the caller is gone or asks nothing."""
    line, files, _, _ = socket.recv_fds(connection, 1 << 16, 253)  # more cannot be sent
    while not line.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more:
            for file in files:
                os.close(file)
            return None
        line += more
    return ast.literal_eval(line.decode()), files


def tell(number: int, connection: socket.socket) -> None:
    """Send a number to the caller, who may be gone."""
    with suppress(OSError):
        connection.sendall(number.to_bytes(4, "big", signed=True))


def become(call: Mapping[str, Any], files: Sequence[int], added: Mapping[str, str]) -> None:
    """Take over what is the caller's; `added` is what modules added to an environment."""
    try:
        os.setpgid(0, call["group"])
    except PermissionError:  # the caller's is of a session of its own
        os.setsid()
    place_files(files, call["numbers"])
    wanted, own = at_start(call["environment"]), at_start(os.environ)
    if wanted != own:
        sys.exit(f"a fork server has {own} and cannot start a program with {wanted}: start it cold")
    os.environ.clear()
    os.environ.update({**added, **call["environment"]})
    tempfile.tempdir = None  # it is looked up where the environment says
    os.chdir(call["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


def place_files(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Let each file be open under its number."""
    moved = [move(file, numbers) for file in files]
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def move(file: int, numbers: Sequence[int]) -> int:
    """Out of the way of those that are to have these numbers."""
    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1)
    os.close(file)
    return moved


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What was read while this process started."""
    # pytest removes variables while threads of a test read them: a listed name may be gone.
    return {
        name: environment.get(name, "")
        for name in list(environment)
        if name.startswith(AT_START) and name != READ_LATER
    }


def divide(modules: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Those of the program, and those of its workers."""
    end = modules.index("--") if "--" in modules else len(modules)
    return modules[:end], modules[end + 1 :]


def run(program: str) -> None:
    """Run the script, and end as Python ends it.

    But in the usual case the modules are left standing: to take torch down lasts a second.
    """
    code: Any = None
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):  # a text, which Python prints
            raise
    threading._shutdown()  # waits for the other threads, as Python does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def begin_workers(modules: Sequence[str], folder: Path) -> None:
    """Start the server of the workers; a program that is forked from here finds it running.

    It is multiprocessing's own, in a fork that has the libraries, not in a new Python.
    """
    forkserver.set_forkserver_preload(list(modules))
    sys.warnoptions.append("ignore:resource_tracker")  # that killed programs leave things behind
    resource_tracker.ensure_running()  # a Python of its own, which needs no libraries
    sys.warnoptions.pop()
    usual, util.spawnv_passfds = util.spawnv_passfds, fork_python
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = usual
    (folder / WORKERS).write_text(str(forkserver._forkserver._forkserver_pid), "utf-8")
    # It is no child of the programs, which would ask the system for its state.
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]


def fork_python(path: str, arguments: Sequence[str], files: Sequence[int]) -> int:
    """Do in a fork what `python -c CODE` would do, with these files open and no others."""
    number = fork()
    if number == 0:
        # util.close_all_fds_except closes all of them where 0 is kept, at least in 3.11.
        kept = {0, 1, 2, *files}
        for file in [int(path.name) for path in Path("/dev/fd").iterdir()]:
            if file not in kept:
                with suppress(OSError):  # the one that listed them
                    os.close(file)
        with suppress(SystemExit):
            exec(arguments[-1], {})
        os._exit(0)
    return number


def main() -> None:
    """Import the libraries, serve, and be the program."""
    number, program, *modules = sys.argv[1:]
    sys.path[0] = str(Path(program).parent)  # as when Python runs it
    modules, workers = divide(modules)
    listener = socket.socket(fileno=int(number))
    gc.disable()  # libraries are no garbage
    before = set(os.environ)
    for name in modules:
        importlib.import_module(name)
    added = {name: os.environ[name] for name in set(os.environ) - before}
    if workers:
        begin_workers(workers, Path(listener.getsockname()).parent)
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()  # the programs share the memory of the libraries: collectors would copy it
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the programs
    call, files = serve(listener)
    become(call, files, added)
    sys.argv = [program, *call["arguments"]]
    run(program)


if __name__ == "__main__":
    main()
