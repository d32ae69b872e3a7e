"""Real programs in processes of their own, which start soon: forks of one that has the libraries.

The program is the installed one, unmodified: see tests/fork_server.py. It reads its environment
and puts its commands together anew each time. All that a start of Python settles is the server's:
for where that matters, such as the seed of hashes, a test starts the program cold.
"""

import fnmatch
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path
from socket import AF_UNIX, SHUT_WR, socket
from typing import IO, Any

import psutil

from solution.system.processes import STACK
from tests import fork_client
from tests.fork_server import WORKERS

BIN = Path(sys.executable).parent
SERVER = Path(__file__).parent / "fork_server.py"
# With what they import only when it is used, for then each fork would import it.
LIBRARIES = (
    "encodings.cp437", "encodings.utf_8_sig", "isal.igzip_lib", "isal.isal_zlib", "jinja2",
    "joblib", "matplotlib.figure", "numpy", "polars", "psutil", "pydantic.dataclasses",
    "pydantic.type_adapter", "pydantic.types", "rich.emoji", "rich.progress", "rich.table",
    "safetensors.numpy", "scipy.stats", "statistics", "threadpoolctl", "tomllib", "typer",
    "webbrowser",
)  # fmt: skip
TRAINING_LIBRARIES = (
    "lightgbm", "lightning_fabric", "multiprocessing.popen_forkserver", "numba", "optuna",
    "safetensors.torch", "sklearn", "torch", "torch._dynamo", "torch_geometric",
)  # fmt: skip
# What the commands import in turn: of our own, which read the environment when they are used.
OWN = (
    "ensembles.tables", "solution.analysis.first_look", "solution.runs.job",
    "solution.store.preparing", "solution.training.opening", "solution.training.out_of_fold",
    "submissions.build", "submissions.doctor", "submissions.download",
    "submissions.kernels.notebooks", "submissions.kernels.pulling", "submissions.page.build",
    "submissions.sending", "submissions.ledger",
)  # fmt: skip
OWN_TRAINING = (
    "solution.analysis.explanation", "solution.choosing.choose",
    "solution.models.layout.cost_net", "solution.placement.policy.network",
    "solution.placement.placement_report", "solution.serving.packing",
    "solution.training.distilling", "solution.tuning.search",
)  # fmt: skip
KAGGLE_LIBRARIES = (
    "bleach", "dateutil.relativedelta", "dotenv", "google.protobuf.field_mask_pb2", "kagglesdk",
    "packaging.version", "requests", "slugify", "tarfile", "tqdm", "urllib3",
)  # fmt: skip
KERNEL_LIBRARIES = (
    "IPython.core.completer", "ipykernel.kernelapp", "lightgbm", "matplotlib.pyplot", "numba",
    "optuna", "polars", "scipy.stats", "sklearn", "torch", "torch._dynamo",
)  # fmt: skip
# Read by sh and then by Python, as in the scripts of pip: a folder's name may have spaces.
HEAD = f"""#!/bin/sh
'''exec' "{sys.executable}" -IS "$0" "$@"
' '''
"""


class Program:
    """A running program, as subprocess.Popen shows one; it is killed when this is forgotten."""

    def __init__(
        self, arguments: list[str], connection: fork_client.socket, output: IO[str], errors: IO[str]
    ) -> None:
        self.args = arguments
        self.pid = fork_client.receive(connection)
        self.returncode: int | None = None
        self._connection, self._printed = connection, (output, errors)

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        if self.returncode is None and wait([self._connection], 0):
            self.returncode = fork_client.finish(self._connection)
            self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; TimeoutExpired where it does not end within so many seconds."""
        if self.returncode is None:
            wait([self._connection], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed, and its errors, when it has ended."""
        self.wait(timeout)
        for file in self._printed:
            file.seek(0)
        output, errors = (file.read() for file in self._printed)
        return output, errors

    def send_signal(self, number: int) -> None:
        """To the program alone."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Server:
    """Forks one installed program; it begins with the first call, and ends with the tests."""

    def __init__(
        self,
        program: str | Path,
        libraries: tuple[str, ...],
        workers: tuple[str, ...] = (),
        python: str | Path = sys.executable,
        **settings: str,
    ) -> None:
        self.program = BIN / program
        self._python = python
        # The frameworks of macOS must not be forked: there nothing is imported before.
        self._libraries = () if sys.platform == "darwin" else (*libraries, "--", *workers)
        self._settings = settings
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._closing = ExitStack()

    def close(self) -> None:
        """End it and all that it began; one that lasts as long as the tests need not be closed."""
        with self._lock:
            self._closing.close()
            self._folder = None

    @property
    def folder(self) -> Path:
        """Where its socket lies."""
        with self._lock:
            if self._folder is None:
                self._folder = self._begin()
        return self._folder

    def _begin(self) -> Path:
        kept = tempfile.TemporaryDirectory(prefix="fork-server-")
        folder = Path(self._closing.enter_context(kept))
        script, source = folder / self.program.name, Path(fork_client.__file__)
        script.write_text(HEAD + source.read_text("utf-8"), "utf-8")
        script.chmod(0o755)
        with socket(AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen(64)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [self._python, SERVER, str(number), self.program, *self._libraries],
                stdin=subprocess.PIPE,  # it ends when this end of the pipe is closed
                pass_fds=[number],
                cwd=SERVER.parent,
                env=self._environment(),
            )
        self._closing.callback(_end, self._process)
        with socket(AF_UNIX) as first:  # a call of nothing: it ends when the libraries are there
            first.connect(str(folder / "socket"))
            first.shutdown(SHUT_WR)
            first.recv(1)
        return folder

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._settings}

    def workers(self) -> list[psutil.Process]:
        """Those of all its programs that train in several processes."""
        number = int((self.folder / WORKERS).read_text("utf-8"))
        return psutil.Process(number).children()

    def programs(self, folder: Path) -> list[psutil.Process]:
        """Those that run in the folder."""
        children = psutil.Process(self._process.pid).children()
        return [child for child in children if child.cwd() == str(folder)]

    @property
    def stand_in(self) -> Path:
        """A script that other processes call in the place of the program."""
        return self.folder / self.program.name

    def start(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        group: int | None = None,
    ) -> Program:
        """Begin the program.

        Args:
            cwd, env: its folder and environment; None: those of this process.
            group: the process group that it joins; None: that of this process; 0: one of its own.
        """
        words = list(map(str, arguments))
        output, errors = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        files = {0: 0, 1: output.fileno(), 2: errors.fileno()}
        connection = fork_client.ask(
            str(self.folder / "socket"),
            words,
            os.environ if env is None else env,
            str(cwd or Path.cwd()),
            os.getpgrp() if group is None else group,
            files,
        )
        return Program([str(self.program), *words], connection, output, errors)

    def run(
        self, *arguments: str | Path, timeout: float = 300, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end, as subprocess.run does; `more` is that of `start`."""
        program = self.start(*arguments, **more)
        try:
            printed = program.communicate(timeout)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(program.args, program.wait(), *printed)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


class KernelServer(Server):
    """Forks kernels of one image, whose environment is `settings` and nothing else.

    The fonts that matplotlib finds are there as well, where each kernel has a home of its own and
    would look for them again.
    """

    def _environment(self) -> dict[str, str]:
        return self._settings


FASTSLOW = Server("fastslow", LIBRARIES + OWN)
TRAINING = Server("fastslow", LIBRARIES + TRAINING_LIBRARIES + OWN + OWN_TRAINING, workers=STACK)
RAY = Server(  # in the place of Python
    str(SERVER.parent / "cluster" / "ray_program.py"), (*STACK, "polars")
)
KAGGLE = Server("kaggle", KAGGLE_LIBRARIES, PYTHONUTF8="1")  # submissions/calls.py sets it


def find_growing(folder: Path, pattern: str) -> list[Path]:
    """The files and folders of such names below a folder where a program is at work.

    Path.rglob ends with FileNotFoundError where the program removes a folder meanwhile.
    """
    return [
        Path(here, name)
        for here, folders, files in os.walk(folder)
        for name in fnmatch.filter([*folders, *files], pattern)
    ]


def wait_until(condition: Callable[[], object], program: Program) -> bool:
    """False where the program ends before."""
    while not condition():
        if program.poll() is not None:
            return False
        time.sleep(0.001)
    return True


def run_cold(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run `fastslow` as users start it; `more` is subprocess.run's."""
    command = [str(FASTSLOW.program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
