"""Read and write the ledger, submissions/ledger.csv: one row for every submission ever begun.

A submission's key is its unique name, which its message at Kaggle contains. The file is committed
and may be edited by hand: columns and rows that a user adds are kept. Rows are sorted, and rows
with the same key are merged, so `merge=union` in .gitattributes is enough to merge branches.

The column `state`:

    sending   written before the upload: not known yet whether it arrives
    accepted  Kaggle answered that it was submitted, but does not list it yet
    pending   Kaggle lists it, without a score so far
    scored    Kaggle lists it with its scores
    error     Kaggle lists it and could not score it
    failed    it did not arrive, and does not count as one of the day's submissions
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from solution.domain.collection import NAMES
from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file
from solution.system.wording import count
from submissions.calls import WaitSettings, pause, wait_for_lock
from submissions.kaggle import SMALLEST_PAGE, Kaggle, Submission, SubmissionLimits

MAX_BYTES = 64 << 20  # largest ledger that is read; a row has a few hundred bytes
OOF_COLUMNS = {name: "oof_" + name.replace(":", "_") for name in NAMES}
COLUMNS = (
    "key",
    "when",  # time of the submission: UTC, ISO 8601
    "recipe",
    "experiments",  # names of the recipe's experiments, joined by +
    "commit",  # the code that made the predictions
    "data",  # fingerprint of the data folder
    "file",  # first digits of the CSV's SHA-256
    "state",
    "ref",  # Kaggle's number of the submission
    *OOF_COLUMNS.values(),
    "oof_mean",
    "public",
    "private",
    "notes",
)
# Values of the column `state`. If rows with the same key are merged, the row with the later state
# in this list wins.
STATES = ("", "sending", "accepted", "failed", "pending", "error", "scored")
IN_DOUBT = ("sending", "accepted")
CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")  # marks of an unresolved git merge

Line = dict[str, str]  # a row of the ledger: its values by column
ADVICE = (
    "Run the same command again later: it looks first. If the competition's page, under "
    "Submissions, shows that it did not arrive, give --not-there (make: NOT_THERE=1)."
)


@dataclass
class Ledger:
    """The ledger in memory: its column names, in the file's order, and its rows."""

    columns: list[str] = field(default_factory=lambda: list(COLUMNS))
    lines: list[Line] = field(default_factory=list)

    def find(self, key: str) -> Line | None:
        return next((line for line in self.lines if line["key"] == key), None)

    def in_doubt(self) -> list[Line]:
        """Return the rows of submissions that may or may not have arrived (sending, accepted)."""
        return [line for line in self.lines if line["state"] in IN_DOUBT]

    def of_file(self, fingerprint: str) -> list[Line]:
        """Return the rows of submissions of the CSV file with this fingerprint that arrived or may
        have arrived."""
        same = (line for line in self.lines if line["file"] == fingerprint)
        return [line for line in same if line["state"] not in ("", "failed")]

    def put(self, key: str, **values: str) -> None:
        """Set values in the row of `key`; add the row if it does not exist."""
        line = self.find(key)
        if line is None:
            line = dict.fromkeys(self.columns, "")
            self.lines.append(line)
        line.update(values, key=key)


def read_ledger(path: Path) -> Ledger:
    """Read the file; return an empty ledger if it does not exist. Raises InputError that names the
    line if a part of it cannot be read."""
    if not path.exists() and not path.is_symlink():
        return Ledger()
    try:
        content = open_regular(path, "a ledger", MAX_BYTES)
        # utf-8-sig accepts a byte-order mark, because a spreadsheet may write one
        with io.TextIOWrapper(content, "utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8 text: {error}. Save it as UTF-8.") from error
    except OSError as error:  # a link to a missing file is an error, not an empty ledger
        raise InputError(
            f"{path}: expected a ledger that can be read, but: {error.strerror}. Make it readable, "
            "or restore the file that it links to."
        ) from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(CONFLICT):
            raise InputError(
                f"{path}, line {number}: an unresolved merge conflict. Keep the lines of both "
                "sides and delete the marks; lines of one key are joined automatically."
            )
    return _parse(path, text)


def _parse(path: Path, text: str) -> Ledger:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    ledger = Ledger(columns=[])
    try:
        for row in rows:
            if not row:
                continue
            if not ledger.columns:
                if "key" not in row or len(set(row)) < len(row):
                    raise InputError(
                        f"{path}: expected a header of distinct names with a column key, found "
                        f"{','.join(row)[:200]!r}. Restore it: git checkout {path}"
                    )
                ledger.columns = row
            elif len(row) != len(ledger.columns):
                advice = "Put quotes around a cell that holds commas."
                if len(row) < len(ledger.columns):  # each value may belong to another column
                    advice = "Write a comma for each empty cell."
                raise InputError(
                    f"{path}, line {rows.line_num}: {count(len(row), 'cell')}, but the header has "
                    f"{len(ledger.columns)}. {advice}"
                )
            else:
                ledger.lines.append(dict(zip(ledger.columns, row, strict=True)))
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: not a CSV line: {error}.") from error
    missing = [name for name in COLUMNS if name not in ledger.columns]
    ledger.columns += missing
    for line in ledger.lines:
        line.update(dict.fromkeys(missing, ""))
        if line["key"]:
            line["state"] = line["state"].strip().lower()  # users may edit the ledger by hand
    ledger.lines = _join_lines(ledger.lines)
    return ledger


def _join_lines(lines: list[Line]) -> list[Line]:
    """Merge rows with the same key; keep rows without a key, which the user added."""
    joined: list[Line] = []
    by_key: dict[str, Line] = {}
    for line in lines:
        key = line["key"]
        if not key or key not in by_key:
            joined.append(line)
            by_key[key] = line
        else:
            _join(by_key[key], line)
    return joined


def _join(line: Line, other: Line) -> None:
    """Merge `other` into `line`, two rows with the same key. Where both have a value, the row with
    the later state in STATES wins. Notes, and columns that the user added, keep both values."""
    is_newer = _rank(other) > _rank(line)
    for name, value in other.items():
        first = line[name]
        if not first or not value or first == value:
            line[name] = first or value
        elif name == "notes" or name not in COLUMNS:
            line[name] = " | ".join(dict.fromkeys([*first.split(" | "), *value.split(" | ")]))
        elif is_newer:
            line[name] = value


def _rank(line: Line) -> int:
    return STATES.index(line["state"]) if line["state"] in STATES else len(STATES)


def write_ledger(ledger: Ledger, path: Path) -> None:
    """Write the file atomically, sorted by time and key."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ledger.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(ledger.lines, key=lambda line: (line["when"], line["key"])))


@contextmanager
def edit_ledger(path: Path) -> Iterator[Ledger]:
    """Hold the ledger's lock and yield the ledger; then write it if it changed or has no file."""
    lock = path.with_name(f".{path.name}.lock")
    with wait_for_lock(lock, 60.0, "is writing the ledger"):
        ledger = read_ledger(path)
        before = repr(ledger)
        yield ledger
        if repr(ledger) != before or not path.is_file():
            write_ledger(ledger, path)


class UnknownError(InputError):
    """Raised if it is not known yet whether a submission arrived at Kaggle."""


@dataclass
class Tracker:
    """A writer of the ledger that keeps it consistent with Kaggle's list of submissions."""

    kaggle: Kaggle
    # by key: row of each submission that this process began
    begun: dict[str, Line] = field(default_factory=dict)

    @property
    def settings(self) -> WaitSettings:
        return self.kaggle.settings

    @property
    def path(self) -> Path:
        return self.settings.ledger

    def read(self) -> Ledger:
        return read_ledger(self.path)

    def begin(self, key: str, **values: str) -> None:
        """Write a submission's row before the upload."""
        self.begun[key] = {"state": "sending", **values}
        with edit_ledger(self.path) as ledger:
            ledger.put(key, **self.begun[key])

    def accept(self, key: str) -> None:
        """Record that Kaggle answered that the upload was submitted."""
        self.begun[key]["state"] = "accepted"
        with edit_ledger(self.path) as ledger:
            line = ledger.find(key)
            # another process may have seen the submission at Kaggle and written a later state
            if line is None or line["state"] == "sending":
                ledger.put(key, **(self.begun[key] if line is None else {"state": "accepted"}))

    def look(self) -> list[Submission]:
        """Update the ledger from Kaggle's list of submissions; return the list."""
        listed = self.kaggle.list_submissions()
        with edit_ledger(self.path) as ledger:
            for key, values in self.begun.items():
                if ledger.find(key) is None:  # a git checkout or stash removed the new row
                    ledger.put(key, **values)
            for submission in listed:
                line = _find_line(ledger, submission)
                if line is not None:
                    note(ledger, line["key"], submission)
        return listed

    def reconcile(
        self, *, not_there: bool = False
    ) -> tuple[list[Submission], SubmissionLimits | None]:
        """Ask Kaggle whether the submissions in state "sending" or "accepted" arrived.

        The state of a submission that is proven missing becomes "failed". A submission that Kaggle
        accepted in this process may be listed late, so its row stays.

        Args:
            not_there: the user confirms that submissions that Kaggle does not list did not arrive.

        Returns:
            Kaggle's list of submissions; and the numbers of submissions that Kaggle counts and
            still allows, or None if they were not asked for or are not known.

        Raises KaggleError if Kaggle could not be asked, UnknownError if the list proves nothing.
        """
        listed = self.look()
        in_doubt = self.read().in_doubt()
        if not in_doubt:
            return listed, None
        wait = max(self._time_left(line) for line in in_doubt)
        if wait > 0:
            pause(wait, "Checking whether the submission arrived after all")
            listed = self.look()
            in_doubt = self.read().in_doubt()
        if not in_doubt:
            return listed, None
        limits = None
        if not not_there:
            limits = self.kaggle.ask_limits()
            for line in in_doubt:
                self._check_missing(listed, limits, line)
        with edit_ledger(self.path) as ledger:
            for line in in_doubt:
                if not self._was_just_accepted(line):
                    ledger.put(line["key"], state="failed")
        return listed, limits

    def _was_just_accepted(self, line: Line) -> bool:
        return line["state"] == "accepted" and line["key"] in self.begun

    def _check_missing(
        self, listed: list[Submission], limits: SubmissionLimits | None, line: Line
    ) -> None:
        """Raise UnknownError unless Kaggle's list and count prove the submission missing."""
        if not _is_proven_missing(listed, limits, line):
            counted = "does not say how many there are"
            if limits is not None:
                counted = f"counts {limits.numTotal}"
            raise UnknownError(
                f"{line['key']}: it is not known whether it arrived. Kaggle lists "
                f"{count(len(listed), 'submission')} and {counted}. {ADVICE}"
            )
        if self._was_just_accepted(line) or (line["state"] != "accepted" and limits is not None):
            return
        begun = read_time(line["when"])
        due = begun and begun + timedelta(seconds=self.settings.accepted_seconds)
        if due is None or datetime.now(UTC) < due:
            until = f" before {show_time(due)} (FASTSLOW_ACCEPTED_SECONDS)" if due else ""
            known = "Kaggle does not list it so far, and does not say how many there are"
            if line["state"] == "accepted":
                known = "Kaggle said that it was submitted, and does not list it so far"
            raise UnknownError(
                f"{line['key']}, begun {line['when']}: {known}. It may still appear, so nothing is "
                f"sent{until}. {ADVICE}"
            )

    def _time_left(self, line: Line) -> float:
        """Return how many seconds to wait until an unlisted submission cannot appear any more.

        The upload of the submission has ended: otherwise the uploading process would hold the lock.
        If another process uploaded it, only the start is known: the upload took at most
        `upload_seconds`. An upload of this process counts as ended just now, because the machine
        may have slept or its clock may have been set.
        """
        begun, quiet = read_time(line["when"]), self.settings.quiet_seconds
        if begun is None or line["key"] in self.begun:
            return quiet
        elapsed = (datetime.now(UTC) - begun).total_seconds()
        return 0.0 if elapsed > self.settings.upload_seconds + quiet else quiet


def _find_line(ledger: Ledger, submission: Submission) -> Line | None:
    """Return the row of a listed submission: by Kaggle's number, else by the key in its message."""
    number, key = str(submission.ref), submission.field("key")
    for line in ledger.lines:
        if line["key"] and line["ref"] == number:
            return line
    found = ledger.find(key) if key else None
    return found if found is not None and not found["ref"] else None


def note(ledger: Ledger, key: str, submission: Submission) -> None:
    """Copy the state, number and scores that Kaggle lists for a submission into its row."""
    scores = {"public": submission.publicScore, "private": submission.privateScore}
    known = {name: str(value) for name, value in scores.items() if value not in ("", None)}
    ledger.put(key, state=submission.state, ref=str(submission.ref), **known)


def show_time(moment: datetime) -> str:
    """Return a time in UTC in the ledger's format, such as 2026-11-21T07:30:12Z."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_time(text: str) -> datetime | None:
    """Parse a time in UTC, with or without a zone; None if the text is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _is_proven_missing(
    listed: list[Submission], limits: SubmissionLimits | None, line: Line
) -> bool:
    """Return True if Kaggle's list proves that the row's submission did not arrive.

    It proves this if it has as many submissions as Kaggle counts, or if it is sorted, newest first,
    and reaches back to before the upload. A list shorter than SMALLEST_PAGE should be complete, so
    it proves nothing if Kaggle counts more submissions.
    """
    if limits == SubmissionLimits():  # all zeros: an invalid answer, or an unknown user
        return False
    if limits is not None and len(listed) >= limits.numTotal:
        return True
    times = [moment for row in listed if (moment := read_time(row.date))]
    begun = read_time(line["when"])
    is_ordered = times == sorted(times, reverse=True)  # an unordered page may omit any row
    is_long = limits is None or len(listed) >= SMALLEST_PAGE
    return bool(is_ordered and is_long and begun and times and min(times) < begun)
