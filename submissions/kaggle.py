"""The calls of the kaggle CLI: under a time limit, with their answers checked.

The CLI runs as a child process and gets credentials only as it finds them itself (environment or
files). Its answers are trusted only as far as they can be read: see submissions/failures.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from solution.errors import InputError
from solution.progress import console
from submissions.credentials import describe_credentials, find_credentials, redact
from submissions.failures import (
    BAD_REPLY,
    NO_CREDENTIALS,
    TIMED_OUT,
    KaggleError,
    Kind,
    explain,
    tell,
)
from submissions.settings import Settings

Answer = TypeVar("Answer")

PAGE = 200
SMALLEST_PAGE = 20  # a server may cut a page down to this; a shorter one is everything
MAX_PAGES = 100
REPORT_SECONDS = 1.0  # between two looks at the progress of a download
SUCCESS = "Successfully submitted"
# VERBOSE prints every request with its key; the others change what a command does.
NOT_PASSED_ON = (
    "VERBOSE",
    "VERBOSE_OUTPUT",
    "KAGGLE_COMPETITION",
    "KAGGLE_PATH",
    "KAGGLE_COMPETITION_SUBMISSION_MODEL_VERSION_ID",
)


class Submission(BaseModel):
    """A submission as Kaggle lists it."""

    ref: int
    date: str  # UTC, ISO 8601
    description: str | None = ""
    status: str
    publicScore: str | float | None = ""  # noqa: N815 - Kaggle's names
    privateScore: str | float | None = ""  # noqa: N815

    @property
    def state(self) -> str:
        """pending, scored or error."""
        name = self.status.rpartition(".")[2].upper()
        return {"COMPLETE": "scored", "ERROR": "error"}.get(name, "pending")

    def field(self, name: str) -> str:
        """A value such as key from a message "key=... recipe=..."; empty where it has none."""
        found = re.search(rf"(?:^|\s){name}=(\S+)", self.description or "")
        return found.group(1) if found else ""


class Limits(BaseModel):
    """How many submissions were made and are left; Kaggle leaves zeros out."""

    numToday: int = 0  # noqa: N815
    numTotal: int = 0  # noqa: N815
    numAllowedNow: int = 0  # noqa: N815


class Place(BaseModel):
    """A line of the public leaderboard."""

    teamName: str | None = ""  # noqa: N815
    score: float | None = None


class DataFile(BaseModel):
    """A file of the competition's data."""

    name: str
    size: int = 0  # bytes


@dataclass(frozen=True)
class Kaggle:
    """The CLI in this environment."""

    settings: Settings
    keep_open: tuple[int, ...] = ()  # descriptors that a running call holds: the submit's lock

    def list_submissions(self) -> list[Submission]:
        """The newest submissions, newest first; the CLI shows no second page of them."""
        doing = "looking for submissions"
        return self._insist(lambda: self._ask_page(Submission, doing, "submissions")[0])

    def ask_limits(self) -> Limits:
        """What is left to submit."""

        def ask() -> Limits:
            doing = "asking how many submissions are left"
            printed = self._run(doing, ["submission-limits", "--json", "-q"])
            return self._parse(Limits, _find_json(printed, "{"), doing)

        return self._insist(ask)

    def list_leaderboard(self) -> list[Place]:
        """The whole public leaderboard, best first."""
        return self._ask_tokens(Place, "asking for the leaderboard", "leaderboard", "--show")

    def list_files(self) -> list[DataFile]:
        """The files of the competition."""
        return self._ask_tokens(DataFile, "asking for the list of files", "files")

    def upload(self, file: Path, message: str) -> None:
        """Submit once. Returning means that Kaggle said yes; only a listing proves it."""
        doing = "submitting"
        command = ["submit", "-f", str(file), "-m", message, "-q"]
        printed = self._run(doing, command, self.settings.upload_seconds)
        if SUCCESS not in printed:
            raise self._explain(tell(printed), doing, printed)

    def download(self, folder: Path, name: str | None = None) -> None:
        """Download the archive of everything, or one file, into `folder`; resumes."""
        command = ["download", "-p", str(folder), "-q", *(["-f", name] if name else [])]
        limit = self.settings.download_seconds
        with console.status("Downloading") as status:

            def report() -> None:
                bytes_here = sum(path.stat().st_size for path in folder.glob("*.zip"))
                status.update(f"Downloading: {bytes_here / 1e6:,.0f} MB are here")

            shown = None if name else report  # single files have a bar of their own
            self._insist(lambda: self._run("downloading", command, limit, shown))

    def version(self) -> str:
        """The CLI's own version, such as 2.2.4."""
        done = subprocess.run(
            [find_program(), "-W", "--version"],
            env=make_environment(),
            capture_output=True,
            text=True,
            timeout=self.settings.call_seconds,
        )
        return done.stdout.strip().rpartition(" ")[2] or "unknown"

    def _ask_tokens(self, kind: type[Any], doing: str, *command: str) -> list[Any]:
        """Follow the page tokens to the end."""
        rows: list[Any] = []
        token: list[str] = []
        for _ in range(MAX_PAGES):
            asked = (*command, *token)
            page, following = self._insist(
                lambda asked=asked: self._ask_page(kind, doing, *asked)  # type: ignore[misc]
            )
            rows += page
            if not following or not page:
                break
            token = ["--page-token", following]
        return rows

    def _ask_page(self, kind: type[Any], doing: str, *command: str) -> tuple[list[Any], str]:
        options = ["--format", "json", "--page-size", str(PAGE), "-q"]
        printed = self._run(doing, [*command, *options])
        following = re.search(r"^Next Page Token = (\S+)$", printed, re.MULTILINE)
        text = _find_json(printed, "[")
        if text is None and not re.search(r"^No (submissions|results|files) found", printed, re.M):
            raise self._explain(BAD_REPLY, doing, printed)
        rows = [self._parse(kind, json.dumps(row), doing) for row in json.loads(text or "[]")]
        return rows, following.group(1) if following else ""

    def _parse(self, kind: type[Any], text: str | None, doing: str) -> Any:
        try:
            return kind.model_validate_json(text or "")
        except ValidationError as error:
            raise self._explain(BAD_REPLY, doing, str(error.errors()[0]["msg"])) from error

    def _insist(self, call: Callable[[], Answer]) -> Answer:
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

    def _run(
        self,
        doing: str,
        command: Sequence[str],
        limit: float | None = None,
        report: Callable[[], None] | None = None,
    ) -> str:
        """Run one command and return what it printed; KaggleError where it failed."""
        seconds = self.settings.call_seconds if limit is None else limit
        action, *rest = command
        whole = [find_program(), "-W", "competitions", action, self.settings.competition, *rest]
        with subprocess.Popen(
            whole,
            env=make_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            pass_fds=self.keep_open,
        ) as process:
            try:
                output = _await(process, seconds, report)
            except BaseException:  # a stopped command must not go on by itself
                process.kill()
                raise
        if output is None:
            raise self._explain(TIMED_OUT, doing, "", seconds)
        printed = redact(output)
        if process.returncode:
            raise self._explain(tell(printed), doing, printed)
        return printed

    def _explain(self, kind: Kind, doing: str, printed: str, seconds: float = 0) -> KaggleError:
        if kind.name == "401":  # the CLI's own words are a page of help
            printed, kind = "", kind if find_credentials() else NO_CREDENTIALS
        facts = {"competition": self.settings.competition, "source": describe_credentials()}
        return explain(kind, doing, printed, seconds=seconds, **facts)


def _await(
    process: subprocess.Popen[str], seconds: float, report: Callable[[], None] | None
) -> str | None:
    """What the process prints until it ends; None where it was killed after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            out, err = process.communicate(timeout=max(0.01, min(left, REPORT_SECONDS)))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                process.kill()
                process.communicate()
                return None
            if report is not None:
                report()
        else:
            return f"{out}\n{err}"


def find_program() -> str:
    """The kaggle command: FASTSLOW_KAGGLE, the one beside this Python, or the one on the PATH."""
    beside = Path(sys.executable).parent / "kaggle"
    program = os.environ.get("FASTSLOW_KAGGLE") or (
        str(beside) if beside.is_file() else shutil.which("kaggle")
    )
    if program is None:
        raise InputError("The kaggle CLI is not installed. Install it with `pip install kaggle`.")
    return program


def make_environment() -> dict[str, str]:
    """The environment of a call: this one, without what makes the CLI leak or go elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    return {**kept, "PYTHONUTF8": "1"}  # team names are not always ASCII


def pause(seconds: float, why: str) -> None:
    """Wait, and say why."""
    with console.status(f"{why} ({seconds:.0f} s)"):
        time.sleep(seconds)


def _find_json(printed: str, opening: str) -> str | None:
    """The JSON value in the output: it starts a line, and warnings may stand around it."""
    for found in re.finditer(rf"^{re.escape(opening)}", printed, re.MULTILINE):
        try:
            _, end = json.JSONDecoder().raw_decode(printed, found.start())
        except ValueError:
            continue
        return printed[found.start() : end]
    return None
