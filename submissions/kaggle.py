"""The calls of the kaggle CLI for submissions and data."""

import json
import math
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator

from solution.system.progress import console
from submissions.calls import Calls, find_json, find_program, make_environment
from submissions.credentials import redact
from submissions.failures import BAD_REPLY, NO_ENDPOINT, KaggleError, tell_failure

PAGE = 200
# Kaggle may cut a page to this many rows, so only a shorter page is known to be complete.
SMALLEST_PAGE = 20
MAX_PAGES = 100
SUCCESS = "Successfully submitted"


def read_number(cell: str | None) -> float | None:
    """Return the number in a cell; None if it is not a finite number."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# a score as Kaggle writes it; None if that is not a finite number
Score = Annotated[
    str | float | None,
    AfterValidator(lambda value: None if read_number(str(value)) is None else value),
]


class Submission(BaseModel):
    """A submission as Kaggle lists it."""

    ref: int
    date: str  # UTC, ISO 8601
    description: str | None = ""
    status: str
    publicScore: Score = ""  # noqa: N815 - Kaggle's names
    privateScore: Score = ""  # noqa: N815

    @property
    def state(self) -> str:
        """State of the submission in the ledger: pending, scored or error."""
        name = self.status.rpartition(".")[2].upper()
        return {"COMPLETE": "scored", "ERROR": "error"}.get(name, "pending")

    def field(self, name: str) -> str:
        """Return NAME's value in the message "key=... NAME=..."; empty if it is missing."""
        found = re.search(rf"(?:^|\s){name}=(\S+)", self.description or "")
        return found.group(1) if found else ""


class SubmissionLimits(BaseModel):
    """How many submissions were made today and in all, and how many are allowed now. Kaggle leaves
    out numbers that are zero."""

    numToday: int = 0  # noqa: N815
    numTotal: int = 0  # noqa: N815
    numAllowedNow: int = 0  # noqa: N815


class LeaderboardRow(BaseModel):
    """A row of the public leaderboard."""

    teamName: str | None = ""  # noqa: N815
    score: Annotated[float | None, BeforeValidator(lambda value: read_number(str(value)))] = None


class DataFile(BaseModel, frozen=True):
    """A file of the competition's data."""

    name: str
    size: int = 0  # bytes


class Kaggle(Calls):
    """Calls of the kaggle CLI about the competition: its submissions, leaderboard and files."""

    def list_submissions(self) -> list[Submission]:
        """Return at most PAGE submissions, newest first: the CLI returns one page only."""
        doing = "looking for submissions"
        listed = self.insist(lambda: self._ask_page(Submission, doing, "submissions")[0])
        return list({row.ref: row for row in listed}.values())  # drop repeated rows

    def ask_limits(self) -> SubmissionLimits | None:
        """Return how many submissions were made and remain; None if Kaggle lacks this query."""

        def ask() -> SubmissionLimits:
            doing = "asking how many submissions are left"
            printed = self._compete(doing, ["submission-limits", "--json", "-q"])
            return self.parse(SubmissionLimits, find_json(printed, "{"), doing)

        try:
            return self.insist(ask)
        except KaggleError as error:
            if error.kind.name in NO_ENDPOINT:
                return None
            raise

    def list_leaderboard(self) -> list[LeaderboardRow]:
        """Return the whole public leaderboard, best first."""
        doing = "asking for the leaderboard"
        return self._ask_tokens(LeaderboardRow, doing, "leaderboard", "--show")

    def list_files(self) -> list[DataFile]:
        """Return the competition's files."""
        return self._ask_tokens(DataFile, "asking for the list of files", "files")

    def upload(self, file: Path, message: str) -> None:
        """Submit a file once; raise KaggleError unless Kaggle says that it arrived."""
        doing = "submitting"
        command = ["submit", "-f", str(file), "-m", message, "-q"]
        printed = self._compete(doing, command, self.settings.upload_seconds)
        if SUCCESS not in printed:
            raise self.explain(tell_failure(printed), doing, printed)

    def download(self, folder: Path, name: str | None = None) -> None:
        """Download all the competition's data as one archive, or the file `name`, into `folder`. An
        interrupted download is resumed."""
        command = ["download", "-p", str(folder), "-q", *(["-f", name] if name else [])]
        limit = self.settings.download_seconds
        with console.status("Downloading") as status:

            def report() -> None:
                bytes_here = sum(path.stat().st_size for path in folder.glob("*.zip"))
                status.update(f"Downloading: {bytes_here / 1e6:,.0f} MB are here")

            shown = None if name else report  # the CLI shows a progress bar for single files
            self.insist(lambda: self._compete("downloading", command, limit, shown))

    def version(self) -> str:
        """Return the CLI's version, such as 2.2.4."""
        done = subprocess.run(
            [find_program(), "-W", "--version"],
            env=make_environment(),
            capture_output=True,
            text=True,
            timeout=self.settings.call_seconds,
        )
        return redact(done.stdout).strip().rpartition(" ")[2] or "unknown"

    def _ask_tokens(self, kind: type[Any], doing: str, *command: str) -> list[Any]:
        """Return the rows of all pages, parsed as the model `kind`. Each page contains the token
        with which the next page is requested."""
        rows: list[Any] = []
        token: list[str] = []
        for _ in range(MAX_PAGES):
            asked = (*command, *token)
            page, following = self.insist(
                lambda asked=asked: self._ask_page(kind, doing, *asked)  # type: ignore[misc]
            )
            rows += page
            if not following or not page:
                break
            token = ["--page-token", following]
        return rows

    def _ask_page(self, kind: type[Any], doing: str, *command: str) -> tuple[list[Any], str]:
        """Return one page's rows, parsed as `kind`, and the next page's token (empty: none)."""
        options = ["--format", "json", "--page-size", str(PAGE), "-q"]
        printed = self._compete(doing, [*command, *options])
        following = re.search(r"^Next Page Token = (\S+)$", printed, re.MULTILINE)
        text = find_json(printed, "[")
        if text is None and not re.search(r"^No (submissions|results|files) found", printed, re.M):
            raise self.explain(BAD_REPLY, doing, printed)
        rows = [self.parse(kind, json.dumps(row), doing) for row in json.loads(text or "[]")]
        return rows, following.group(1) if following else ""

    def _compete(
        self,
        doing: str,
        command: Sequence[str],
        limit: float | None = None,
        report: Callable[[], None] | None = None,
    ) -> str:
        """Run `kaggle competitions ACTION COMPETITION ...`; return what it printed."""
        action, *rest = command
        whole = ["competitions", action, self.settings.competition, *rest]
        return self.run(doing, whole, limit, report)
