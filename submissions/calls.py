"""Call the kaggle CLI under a time limit, and validate its answers.

The CLI runs as a child process and finds its credentials by itself, in the environment or in files.
Its answers may be wrong or unreadable: see submissions/failures.py.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import IO, Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solution.system.errors import InputError
from solution.system.files import make_folder, take_lock
from solution.system.progress import console
from solution.system.refusals import name_full_disk, name_refusal
from submissions import failures
from submissions.credentials import VARIABLES, describe_credentials, find_credentials, redact

PREFIX = "FASTSLOW_"
Seconds = Annotated[float, Field(ge=0, le=7 * 24 * 3600)]
ENDING = (signal.SIGTERM, signal.SIGHUP)  # signals that ask a process to end
Answer = TypeVar("Answer")
Model = TypeVar("Model", bound=BaseModel)

REPORT_SECONDS = 1.0  # seconds between two reports of a download's progress
NOT_PASSED_ON = (  # not passed to the CLI: VERBOSE prints its key, others change its commands
    "VERBOSE",
    "VERBOSE_OUTPUT",
    "KAGGLE_COMPETITION",
    "KAGGLE_PATH",
    "KAGGLE_COMPETITION_SUBMISSION_MODEL_VERSION_ID",
)


class WaitSettings(BaseModel):
    """Limits of the communication with Kaggle; times in seconds."""

    model_config = ConfigDict(frozen=True)

    competition: str = "predict-ai-model-runtime"
    submissions: Path = Path(__file__).parent  # folder of ledger.csv and sent/
    call_seconds: Seconds = 120.0  # limit of one query; the kaggle CLI itself has none
    # limit of one upload; longer than the 367 seconds for which the CLI retries an upload by itself
    upload_seconds: Seconds = 600.0
    download_seconds: Seconds = 6 * 3600.0
    tries: int = Field(3, ge=1, le=20)  # how often a call is tried if it fails temporarily
    wait_seconds: Seconds = 5.0  # wait before the second try; doubles before each further try
    quiet_seconds: Seconds = 60.0  # how long after a failed upload the submission may still appear
    # time in which a submission that Kaggle accepted may be missing in Kaggle's list
    accepted_seconds: Seconds = 3600.0
    # how long to wait for a score
    score_seconds: Seconds = 900.0
    # wait between the first two queries for a result; each further wait is longer by half, up to
    # one minute for a score, 30 seconds for a dataset
    poll_seconds: Seconds = 5.0
    ready_seconds: Seconds = 1800.0  # maximum processing time of an uploaded dataset
    wheels: Path = Path("build/kernel-wheels")  # folder of wheels that is uploaded as a dataset
    kernel_python: str = Field("3.12", pattern=r"^3\.\d+$")  # Python version of Kaggle's image
    lock_seconds: Seconds = 120.0  # how long to wait for another process that submits or pushes

    @property
    def ledger(self) -> Path:
        return self.submissions / "ledger.csv"


def read_wait_settings() -> WaitSettings:
    """Return the settings, with values from environment variables such as FASTSLOW_TRIES. Raises
    InputError if a value is not valid."""
    names = {name: PREFIX + name.upper() for name in WaitSettings.model_fields}
    given = {name: os.environ[names[name]] for name in names if os.environ.get(names[name])}
    try:
        return WaitSettings.model_validate(given)
    except ValidationError as error:
        defects = {str(defect["loc"][0]): defect["msg"] for defect in error.errors()}
        words = "; ".join(f"{names[n]}={given[n]}: {msg}" for n, msg in defects.items())
        raise InputError(f"{words}. Correct or unset the variable.") from error


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, so that child processes are ended. A
    signal that is ignored (as after nohup) or has another handler already is left unchanged."""
    is_main = threading.current_thread() is threading.main_thread()
    ours = [n for n in ENDING if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise SystemExit(128 + number)


@dataclass(frozen=True)
class Calls:
    """A runner of kaggle CLI commands under a time limit, which explains failures."""

    settings: WaitSettings
    # descriptors of lock files; the CLI inherits them, so a lock lasts until the CLI has ended
    keep_open: tuple[int, ...] = ()

    def parse(self, kind: type[Model], text: str | None, doing: str) -> Model:
        """Parse a JSON text as the pydantic model `kind`; raise KaggleError if it does not fit.
        `doing` is the purpose of the call, for the error message."""
        try:
            return kind.model_validate_json(text or "")
        except ValidationError as error:
            raise self.explain(failures.BAD_REPLY, doing, str(error.errors()[0]["msg"])) from error

    def insist(self, call: Callable[[], Answer]) -> Answer:
        """Return the result of `call`. It is called again after temporary failures, so repeating it
        must do no harm."""
        wait = self.settings.wait_seconds
        for left in reversed(range(self.settings.tries)):
            try:
                return call()
            except failures.KaggleError as error:
                if not left or not error.kind.passing:
                    raise
            pause(wait, "Kaggle does not answer as it should, trying again soon")
            wait *= 2
        raise AssertionError("unreachable")

    def run(
        self,
        doing: str,
        command: Sequence[str],
        limit: float | None = None,
        report: Callable[[], None] | None = None,
    ) -> str:
        """Run one command and return what it printed; raise KaggleError if it failed.

        Args:
            doing: the purpose of the call, for messages.
            limit: time limit in seconds; by default `call_seconds` of the settings.
            report: called about every second.
        """
        seconds = self.settings.call_seconds if limit is None else limit
        whole = [find_program(), "-W", *command]
        used = next(iter(find_credentials()), None)
        if used is not None and used.defect:  # stop: the CLI would print malformed credentials
            kind = failures.BAD_CREDENTIALS
            words = kind.words.format(source=describe_credentials())
            raise failures.KaggleError(kind, f"{doing}: {words}: {used.defect}. {kind.advice}")
        # write output to files: a pipe that nobody reads fills up and blocks the command
        with TemporaryFile() as said, TemporaryFile() as complaints, stopped_by_signals():
            outputs = (said, complaints)
            with _start(whole, self.keep_open, *outputs) as process:
                try:
                    has_ended = _await(process, seconds, report)
                finally:  # if this process is interrupted, the command must end too
                    process.kill()
            if not has_ended:
                raise self.explain(failures.TIMED_OUT, doing, "", seconds)
            for output in outputs:
                output.seek(0)
            printed = b"\n".join(output.read() for output in outputs)
        words = redact(printed.decode("utf-8", "replace"))
        if process.returncode:
            raise self.explain(failures.tell_failure(words), doing, words)
        return words

    def explain(
        self, kind: failures.FailureKind, doing: str, printed: str, seconds: float = 0
    ) -> failures.KaggleError:
        if kind.name == "401":  # quote nothing: the CLI has printed a whole help page
            printed, kind = "", kind if find_credentials() else failures.NO_CREDENTIALS
        facts = {"competition": self.settings.competition, "source": describe_credentials()}
        return failures.explain_failure(kind, doing, printed, seconds=seconds, **facts)


def _start(
    command: Sequence[str], keep_open: Sequence[int], said: IO[bytes], complaints: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, env=make_environment(), stdin=subprocess.DEVNULL, stdout=said,
            stderr=complaints, pass_fds=keep_open,
        )  # fmt: skip
    except OSError as error:  # for example if the interpreter in its first line is missing
        raise InputError(
            f"{command[0]}: the kaggle CLI cannot be run ({error.strerror}). Install it again: "
            "pip install --force-reinstall kaggle. That is needed after moving its environment."
        ) from error


def _await(
    process: subprocess.Popen[bytes], seconds: float, report: Callable[[], None] | None
) -> bool:
    """Wait until the process has ended, and return True; return False, without ending it, if it
    runs longer than `seconds`. `report` is called after every REPORT_SECONDS."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, min(REPORT_SECONDS, deadline - time.monotonic())))
            return True
        if time.monotonic() > deadline:
            return False
        if report is not None:
            report()


def find_program() -> str:
    """Return the kaggle program: from FASTSLOW_KAGGLE, else beside this Python, else on PATH."""
    given = os.environ.get("FASTSLOW_KAGGLE")
    if given:
        if shutil.which(given) is None:
            raise InputError(
                f"FASTSLOW_KAGGLE={given}: expected a program, found none that can be run. Correct "
                "or unset the variable."
            )
        return given
    beside = Path(sys.executable).parent / "kaggle"
    program = str(beside) if beside.is_file() else shutil.which("kaggle")
    if program is None:
        raise InputError("The kaggle CLI is not installed. Install it with `pip install kaggle`.")
    return program


def make_environment() -> dict[str, str]:
    """Return the CLI's environment, without variables that leak secrets or change commands."""
    left_out = {*NOT_PASSED_ON, *VARIABLES}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    # strip white space, because a trailing line break would end up in an HTTP header
    given = {name: value for name in VARIABLES if (value := os.environ.get(name, "").strip())}
    # use UTF-8, because names of teams may contain any character
    return {**kept, **given, "PYTHONUTF8": "1"}


def pause(seconds: float, why: str) -> None:
    """Print the reason and wait."""
    with console.status(f"{why} ({seconds:.0f} s)"):
        time.sleep(seconds)


def find_json(printed: str, opening: str) -> str | None:
    """Return the text of the first JSON value that stands at the beginning of a line. The value
    begins with `opening`, "[" or "{". The result is None if there is no such value."""
    for found in re.finditer(rf"^{re.escape(opening)}", printed, re.MULTILINE):
        try:
            _, end = json.JSONDecoder().raw_decode(printed, found.start())
        except ValueError:
            continue
        return printed[found.start() : end]
    return None


BETWEEN_TRIES = 0.05  # seconds between two tries to take a lock


class LockedError(InputError):
    """Raised if another process holds the lock."""


@contextmanager
def wait_for_lock(path: Path, seconds: float, what: str) -> Iterator[int]:
    """Hold the lock file at `path`; yield its descriptor.

    A child process that inherits the descriptor holds the lock as well: if this process is killed,
    the lock lasts until the child has ended, too.

    Args:
        seconds: how long to wait for another holder, then LockedError is raised.
        what: the other holder's activity, for the message.
    """
    make_folder(path.parent)
    with name_refusal(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not take_lock(descriptor):
            with console.status(f"Another process {what}, waiting for it"):
                _wait(descriptor, path, seconds, what)
        with name_full_disk(path.parent):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not take_lock(descriptor):
        if time.monotonic() > deadline:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LockedError(
                f"{path}: another process {what} (process {holder}, or a child of it). It did "
                f"not end within {seconds:g} seconds. Wait for it or end it, then try again."
            )
        time.sleep(BETWEEN_TRIES)
