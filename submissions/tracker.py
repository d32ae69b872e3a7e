"""Update the ledger's rows of begun submissions from Kaggle's list."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from solution.system.errors import InputError
from solution.system.wording import count
from submissions.calls import pause
from submissions.kaggle import SMALLEST_PAGE, Kaggle, Limits, Submission
from submissions.ledger import IN_DOUBT, Ledger, Line, edit_ledger, read_ledger
from submissions.settings import Settings

ADVICE = (
    "Run the same command again later: it looks first. Where the competition's page, under "
    "Submissions, shows that it is not there, give --not-there (make: NOT_THERE=1)."
)


class UnknownError(InputError):
    """It is not known yet whether a submission arrived."""


@dataclass
class Tracker:
    """Keeps the ledger consistent with Kaggle's list."""

    kaggle: Kaggle
    skew: float | None = None  # seconds that Kaggle's clock is ahead of ours, if known
    own: dict[str, Line] = field(default_factory=dict)  # rows begun by this process, by key
    ended: dict[str, datetime] = field(default_factory=dict)  # when their uploads ended

    @property
    def settings(self) -> Settings:
        return self.kaggle.settings

    @property
    def path(self) -> Path:
        """Path of the ledger."""
        return self.settings.ledger

    def read(self) -> Ledger:
        """Return the current ledger."""
        return read_ledger(self.path)

    def begin(self, key: str, **values: str) -> None:
        """Write a submission's row before the upload."""
        self.own[key] = {"state": "sending", **values}
        with edit_ledger(self.path) as ledger:
            ledger.put(key, **self.own[key])

    def accept(self, key: str) -> None:
        """Record that Kaggle answered that the upload was submitted."""
        self.own[key]["state"] = "accepted"
        with edit_ledger(self.path) as ledger:
            line = ledger.find(key)
            # no other process has seen it listed meanwhile
            if line is None or line["state"] == "sending":
                ledger.put(key, **(self.own[key] if line is None else {"state": "accepted"}))

    def look(self) -> list[Submission]:
        """List the submissions and update the ledger's rows."""
        listed = self.kaggle.list_submissions()
        with edit_ledger(self.path) as ledger:
            for key, values in self.own.items():
                if ledger.find(key) is None:  # a git checkout or stash removed the new row
                    ledger.put(key, **values)
            for submission in listed:
                line = _find_line(ledger, submission)
                if line is not None:
                    if line["state"] in IN_DOUBT:
                        self.skew = self._find_skew(line, submission.date)
                    note(ledger, line["key"], submission)
        return listed

    def reconcile(self, *, not_there: bool = False) -> tuple[list[Submission], Limits | None]:
        """Look, and decide about every row in state "sending" or "accepted".

        A submission that Kaggle has just accepted may appear late; its row stays.

        Args:
            not_there: the user says that submissions that are not listed did not arrive.

        Returns:
            Kaggle's list; and its limits, if they were asked for and known.

        Raises:
            KaggleError: Kaggle could not be asked.
            UnknownError: the list and the counts are inconsistent.
        """
        listed = self.look()
        in_doubt = self.read().in_doubt()
        if not in_doubt:
            return listed, None
        wait = max(self._time_left(line) for line in in_doubt)
        if wait > 0:
            pause(wait, "Looking whether the submission arrived all the same")
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
        return line["state"] == "accepted" and line["key"] in self.own

    def _check_missing(self, listed: list[Submission], limits: Limits | None, line: Line) -> None:
        """Raise UnknownError unless the list and the count prove that it did not arrive."""
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
        """Return seconds until a submission that is not listed cannot appear any more.

        The upload has ended, because its process would hold the lock. For an upload of another
        process only the start is known. An upload of this process counts as ended just now, because
        the machine may have slept, or its clock may have been set.
        """
        begun, quiet = read_time(line["when"]), self.settings.quiet_seconds
        if begun is None or line["key"] in self.own:
            return quiet
        elapsed = (datetime.now(UTC) - begun).total_seconds()
        return 0.0 if elapsed > self.settings.upload_seconds + quiet else quiet

    def _find_skew(self, line: Line, listed: str) -> float | None:
        """Return seconds by which Kaggle's time is before the upload's start (< 0) or after its
        end (> 0)."""
        begun, made = read_time(line["when"]), read_time(listed)
        if begun is None or made is None:
            return None
        longest = begun + timedelta(seconds=self.settings.upload_seconds)
        ended = max(begun, self.ended.get(line["key"], longest))
        return min(0.0, (made - begun).total_seconds()) + max(0.0, (made - ended).total_seconds())


def _find_line(ledger: Ledger, submission: Submission) -> Line | None:
    """Return the row of a listed submission, by its number first: users may edit messages at
    Kaggle."""
    number, key = str(submission.ref), submission.field("key")
    for line in ledger.lines:
        if line["key"] and line["ref"] == number:
            return line
    found = ledger.find(key) if key else None
    return found if found is not None and not found["ref"] else None


def note(ledger: Ledger, key: str, submission: Submission) -> None:
    """Write Kaggle's data of a submission into its row."""
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


def _is_proven_missing(listed: list[Submission], limits: Limits | None, line: Line) -> bool:
    """Return whether the list is complete, or reaches back far enough, to prove the row missing.

    A page shorter than the smallest page size is the complete list, unless Kaggle counts more.
    """
    if limits == Limits():  # all zeros: Kaggle does not know us, or the answer was not real
        return False
    if limits is not None and len(listed) >= limits.numTotal:
        return True
    times = [moment for row in listed if (moment := read_time(row.date))]
    begun = read_time(line["when"])
    is_ordered = times == sorted(times, reverse=True)  # an unordered page may omit any row
    is_long = limits is None or len(listed) >= SMALLEST_PAGE
    return bool(is_ordered and is_long and begun and times and min(times) < begun)
