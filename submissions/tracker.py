"""What became of the submissions that were begun: Kaggle's list decides, and writes the ledger."""

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
    """Nobody can say at present whether a submission arrived."""


@dataclass
class Tracker:
    """Keeps the ledger in step with the list that Kaggle has."""

    kaggle: Kaggle
    skew: float | None = None  # seconds that Kaggle's clock is ahead of ours, where it was seen
    own: dict[str, Line] = field(default_factory=dict)  # the lines that were begun here, by key
    ended: dict[str, datetime] = field(default_factory=dict)  # when their uploads were over

    @property
    def settings(self) -> Settings:
        return self.kaggle.settings

    @property
    def path(self) -> Path:
        """The ledger."""
        return self.settings.ledger

    def read(self) -> Ledger:
        """The ledger as it is now."""
        return read_ledger(self.path)

    def begin(self, key: str, **values: str) -> None:
        """Write the line of a submission before it is uploaded."""
        self.own[key] = {"state": "sending", **values}
        with edit_ledger(self.path) as ledger:
            ledger.put(key, **self.own[key])

    def accept(self, key: str) -> None:
        """Note that Kaggle said of an upload that it was submitted."""
        self.own[key]["state"] = "accepted"
        with edit_ledger(self.path) as ledger:
            line = ledger.find(key)
            if line is None or line["state"] == "sending":  # nobody has found it listed meanwhile
                ledger.put(key, **(self.own[key] if line is None else {"state": "accepted"}))

    def look(self) -> list[Submission]:
        """List the submissions and write what is known of ours into the ledger."""
        listed = self.kaggle.list_submissions()
        with edit_ledger(self.path) as ledger:
            for key, values in self.own.items():
                if ledger.find(key) is None:  # a checkout or a stash took the new line away
                    ledger.put(key, **values)
            for submission in listed:
                line = _find_line(ledger, submission)
                if line is not None:
                    if line["state"] in IN_DOUBT:
                        self.skew = self._find_skew(line, submission.date)
                    note(ledger, line["key"], submission)
        return listed

    def reconcile(self, *, not_there: bool = False) -> tuple[list[Submission], Limits | None]:
        """Look, and decide about every line in state "sending" or "accepted".

        What Kaggle said just now that it took may be late, but is not missing: its line stays.

        Args:
            not_there: the user says that what is not listed did not arrive.

        Returns:
            What Kaggle lists; and its limits, where they were asked and told.

        Raises:
            KaggleError: Kaggle could not be asked.
            UnknownError: what it answers does not fit together.
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
        """Raise UnknownError where the list and the count do not prove that it did not arrive."""
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
        """Seconds until a submission that is not listed will not appear any more.

        The upload has ended by now, for its process would hold the lock. Where that was another
        one only its begin is known; a machine that slept, or whose clock was set, ended one of ours
        just now all the same.
        """
        begun, quiet = read_time(line["when"]), self.settings.quiet_seconds
        if begun is None or line["key"] in self.own:
            return quiet
        elapsed = (datetime.now(UTC) - begun).total_seconds()
        return 0.0 if elapsed > self.settings.upload_seconds + quiet else quiet

    def _find_skew(self, line: Line, listed: str) -> float | None:
        """Seconds by which Kaggle made a submission before its upload began, or after its end."""
        begun, made = read_time(line["when"]), read_time(listed)
        if begun is None or made is None:
            return None
        longest = begun + timedelta(seconds=self.settings.upload_seconds)
        ended = max(begun, self.ended.get(line["key"], longest))
        return min(0.0, (made - begun).total_seconds()) + max(0.0, (made - ended).total_seconds())


def _find_line(ledger: Ledger, submission: Submission) -> Line | None:
    """The line of what Kaggle lists: by its number, which stays where a message is edited there."""
    number, key = str(submission.ref), submission.field("key")
    for line in ledger.lines:
        if line["key"] and line["ref"] == number:
            return line
    found = ledger.find(key) if key else None
    return found if found is not None and not found["ref"] else None


def note(ledger: Ledger, key: str, submission: Submission) -> None:
    """Write what Kaggle says of a submission into its line."""
    scores = {"public": submission.publicScore, "private": submission.privateScore}
    known = {name: str(value) for name, value in scores.items() if value not in ("", None)}
    ledger.put(key, state=submission.state, ref=str(submission.ref), **known)


def show_time(moment: datetime) -> str:
    """A moment in UTC as the ledger has it, such as 2026-11-21T07:30:12Z."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_time(text: str) -> datetime | None:
    """A moment in UTC, with or without its zone; None where the text is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _is_proven_missing(listed: list[Submission], limits: Limits | None, line: Line) -> bool:
    """Whether the list is whole, or reaches back far enough, to show that it lacks the line.

    A page that is shorter than the shortest is the whole list, unless Kaggle counts more.
    """
    if limits == Limits():  # all zeros: Kaggle knows nothing of us, or that was no real answer
        return False
    if limits is not None and len(listed) >= limits.numTotal:
        return True
    times = [moment for row in listed if (moment := read_time(row.date))]
    begun = read_time(line["when"])
    is_ordered = times == sorted(times, reverse=True)  # else a page that is cut may lack it
    is_long = limits is None or len(listed) >= SMALLEST_PAGE
    return bool(is_ordered and is_long and begun and times and min(times) < begun)
