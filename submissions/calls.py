"""One way of calling the kaggle CLI: under a time limit, with its answers checked.

The CLI runs as a child process and gets credentials only as it finds them itself (environment or
files). Its answers are trusted only as far as they can be read: see submissions/failures.py.
"""

import json
import os
import re
import resource
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from solution.system.errors import InputError
from solution.system.progress import console
from submissions.credentials import (
    VARIABLES,
    describe_credentials,
    find_credentials,
    redact,
)
from submissions.failures import (
    BAD_CREDENTIALS,
    BAD_REPLY,
    NO_CREDENTIALS,
    TIMED_OUT,
    TOO_LARGE,
    KaggleError,
    Kind,
    explain,
    tell,
)
from submissions.settings import Settings
from submissions.stopping import stopped_by_signals

Answer = TypeVar("Answer")

REPORT_SECONDS = 1.0  # between two looks at the progress of a download
# A compressed answer of a few megabytes may inflate to any size, and the CLI keeps it whole. What
# its libraries take before it asks anything is part of this.
MOST_OF_AN_ANSWER = 2 << 30  # bytes
MOST_PRINTED = 16 << 20  # bytes; a page of 200 submissions takes a hundred thousand
BLOCK = 1 << 16  # bytes that are read at once
# VERBOSE prints every request with its key; the others change what a command does.
NOT_PASSED_ON = (
    "VERBOSE",
    "VERBOSE_OUTPUT",
    "KAGGLE_COMPETITION",
    "KAGGLE_PATH",
    "KAGGLE_COMPETITION_SUBMISSION_MODEL_VERSION_ID",
)


@dataclass(frozen=True)
class Calls:
    """The CLI in this environment."""

    settings: Settings
    keep_open: tuple[int, ...] = ()  # descriptors that a running call holds: the submit's lock

    def parse(self, kind: type[Any], text: str | None, doing: str) -> Any:
        """The answer as a model of `kind`; KaggleError where it is something else."""
        try:
            return kind.model_validate_json(text or "")
        except ValidationError as error:
            raise self.explain(BAD_REPLY, doing, str(error.errors()[0]["msg"])) from error

    def insist(self, call: Callable[[], Answer]) -> Answer:
        """Try a call that changes nothing again, after failures that pass."""
        wait = self.settings.wait_seconds
        for left in reversed(range(self.settings.tries)):
            try:
                return call()
            except KaggleError as error:
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
        *,
        memory: int = MOST_OF_AN_ANSWER,
        file: int = MOST_OF_AN_ANSWER,
    ) -> str:
        """Run one command and return what it printed; KaggleError where it failed.

        Args:
            limit: seconds; by default those of a question.
            report: called now and then meanwhile.
            memory: bytes that the command may take.
            file: bytes of each file that it writes.
        """
        seconds = self.settings.call_seconds if limit is None else limit
        whole = [find_program(), "-W", *command]
        _check_credentials(doing)
        with (
            stopped_by_signals(),
            _start(whole, self.keep_open) as process,
        ):
            try:
                _bound(process, memory, file)
                output = _await(process, seconds, report)
            except BaseException:  # a stopped command must not go on by itself
                process.kill()
                raise
        if output is None:
            raise self.explain(TIMED_OUT, doing, "", seconds)
        if len(output) > MOST_PRINTED:
            raise self.explain(TOO_LARGE, doing, "")
        printed = redact(output.decode("utf-8", "replace"))
        if process.returncode:
            raise self.explain(tell(printed), doing, printed)
        return printed

    def explain(self, kind: Kind, doing: str, printed: str, seconds: float = 0) -> KaggleError:
        """The error of a call, in words."""
        if kind.name == "401":  # the CLI's own words are a page of help
            printed, kind = "", kind if find_credentials() else NO_CREDENTIALS
        facts = {"competition": self.settings.competition, "source": describe_credentials()}
        return explain(kind, doing, printed, seconds=seconds, **facts)


def _check_credentials(doing: str) -> None:
    """Raise KaggleError where no header can hold them: the CLI's error would quote the header."""
    used = next(iter(find_credentials()), None)
    if used is not None and used.defect:
        words = BAD_CREDENTIALS.words.format(source=describe_credentials())
        raise KaggleError(
            BAD_CREDENTIALS, f"{doing}: {words}: {used.defect}. {BAD_CREDENTIALS.advice}"
        )


def _start(command: Sequence[str], keep_open: Sequence[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=make_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=keep_open,
        )
    except OSError as error:  # it is there; what its first line names may not be
        raise InputError(
            f"{command[0]}: the kaggle CLI cannot be run ({error.strerror}). Install it again: "
            "pip install --force-reinstall kaggle; after its environment was moved it must be."
        ) from error


def _bound(process: subprocess.Popen[bytes], memory: int, file: int) -> None:
    """Limit the memory of a process that has just begun, and the size of each file it writes."""
    if not hasattr(resource, "prlimit"):  # of Linux
        return
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, file)):
        with suppress(ProcessLookupError):  # it has ended already
            soft, hard = resource.prlimit(process.pid, kind)
            allowed = [most, *(n for n in (soft, hard) if n != resource.RLIM_INFINITY)]
            resource.prlimit(process.pid, kind, (min(allowed), hard))


def _await(
    process: subprocess.Popen[bytes], seconds: float, report: Callable[[], None] | None
) -> bytes | None:
    """Return what the process prints until it ends, and its errors after that.

    It is killed after `seconds`, of which nothing is returned, and when it prints too much.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    printed = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for pipe in printed:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and sum(map(len, printed.values())) <= MOST_PRINTED:
            left = deadline - time.monotonic()
            if left <= 0:
                process.kill()
                return None
            ready = selector.select(min(left, REPORT_SECONDS))
            for key, _ in ready:
                block = os.read(key.fd, BLOCK)
                printed[key.fd] += block
                if not block:
                    selector.unregister(key.fd)
            if not ready and report is not None:
                report()
        if selector.get_map():
            process.kill()
    try:
        process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return None
    return b"\n".join(printed.values())


def find_program() -> str:
    """The kaggle command: FASTSLOW_KAGGLE, the one beside this Python, or the one on the PATH.

    Raises InputError where it is none that can be run.
    """
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
    """The environment of a call: this one, without what makes the CLI leak or go elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    for name in VARIABLES:
        if not kept.setdefault(name, "").strip():
            del kept[name]
        else:
            kept[name] = kept[name].strip()  # a line break at the end would stand in a header
    return {**kept, "PYTHONUTF8": "1"}  # team names are not always ASCII


def pause(seconds: float, why: str) -> None:
    """Wait, and say why."""
    with console.status(f"{why} ({seconds:.0f} s)"):
        time.sleep(seconds)


def find_json(printed: str, opening: str) -> str | None:
    """The JSON value in what was printed: it starts a line; warnings may stand around it."""
    for found in re.finditer(rf"^{re.escape(opening)}", printed, re.MULTILINE):
        try:
            _, end = json.JSONDecoder().raw_decode(printed, found.start())
        except ValueError:
            continue
        return printed[found.start() : end]
    return None
