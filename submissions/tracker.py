"""What became of the submissions that were begun: Kaggle's list decides, and writes the ledger."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from solution.system.errors import InputError
from solution.system.wording import count
from submissions.calls import pause
from submissions.kaggle import SMALLEST_PAGE, Kaggle, Limits, Submission
from submissions.ledger import Ledger, Line, edit_ledger, read_ledger
from submissions.settings import Settings


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
                    if line["state"] == "sending":
                        self.skew = self._find_skew(line, submission.date)
                    note(ledger, line["key"], submission)
        return listed

    def reconcile(self, said_yes: str = "") -> tuple[list[Submission], Limits | None]:
        """Look, and decide about every line in state "sending".

        Args:
            said_yes: the key of one that Kaggle said it took: it may be late, but is not missing.

        Returns:
            What Kaggle lists; and its limits, where they had to be asked.

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
        limits = self.kaggle.ask_limits()
        for line in in_doubt:
            _check_missing(listed, limits, line, self.path)
        with edit_ledger(self.path) as ledger:
            for line in in_doubt:
                if line["key"] != said_yes:
                    ledger.put(line["key"], state="failed")
        return listed, limits

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


def _check_missing(listed: list[Submission], limits: Limits, line: Line, ledger: Path) -> None:
    """A list proves that something is missing only if it is whole, or reaches back far enough."""
    if limits != Limits():  # all zeros: Kaggle knows nothing of us, or that was no real answer
        if len(listed) >= limits.numTotal:
            return
        times = [moment for row in listed if (moment := read_time(row.date))]
        begun = read_time(line["when"])
        is_ordered = times == sorted(times, reverse=True)  # else a page that is cut may lack it
        reaches_back = len(listed) >= SMALLEST_PAGE and begun and times and min(times) < begun
        if is_ordered and reaches_back:
            return
    raise UnknownError(
        f"{line['key']}: it is not known whether it arrived. Kaggle lists "
        f"{count(len(listed), 'submission')} and counts {limits.numTotal}. Run the "
        "same command again in some minutes. Where the competition's page shows that it is not "
        f"there, write failed as its state in {ledger}."
    )
