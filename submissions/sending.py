"""Submit a file exactly once, although each of these steps may fail or be killed.

A submission's key is its unique name, which its message at Kaggle contains.

1. take the lock; the uploading child process inherits it, so that the next submit waits for the
   upload even if this process is killed
2. ask Kaggle for its list of submissions: find earlier submissions that may or may not have
   arrived, or prove that they are missing
3. reject a file that was sent already, and ask how many submissions remain
4. copy the file to sent/KEY and write the ledger's row, state "sending"
5. upload, with the key in the message
6. ask for the list again: only the list proves that the submission arrived. To prove that it did
   not arrive, the list must be asked for some time later, and be as long as Kaggle's count or reach
   back to before the upload. The output of a failed call proves nothing: words like "rate limit"
   may come from any server in between, after Kaggle has accepted the file. For an hour after a
   successful call, only the user can say that the submission is missing
7. release the lock and wait for the score
"""

import time
from datetime import UTC, datetime
from pathlib import Path

from solution.system.errors import InputError
from solution.system.files import remove_leftovers
from solution.system.terminal import say
from submissions.calls import WaitSettings, pause, wait_for_lock
from submissions.failures import DONE, NOT_KNOWN, NOT_SCORED, KaggleError, Outcome
from submissions.kaggle import Kaggle, Submission, SubmissionLimits
from submissions.ledger import (
    ADVICE,
    IN_DOUBT,
    Ledger,
    Line,
    Tracker,
    UnknownError,
    edit_ledger,
    show_time,
)
from submissions.provenance import Upload, make_key

LONGEST_POLL = 60.0  # most seconds between two queries for the score
LIMITS_UNKNOWN = "Kaggle does not say how many submissions are left: sending it will show."
SENT = "sent"  # subfolder of the folder submissions/, for the files that were uploaded


def submit(
    upload: Upload,
    settings: WaitSettings,
    *,
    force: bool = False,
    dry_run: bool = False,
    not_there: bool = False,
) -> Outcome:
    """Send the upload, confirm that it arrived, and wait for its score.

    Args:
        force: send even if the same file was sent before, or no submission seems to remain.
        dry_run: do everything except the upload.
        not_there: the user confirms that earlier submissions that Kaggle does not list did not
            arrive.

    Raises InputError if nothing was sent.
    """
    lock = settings.submissions / ".submitting.lock"
    try:
        with wait_for_lock(lock, settings.lock_seconds, "is submitting") as held:
            tracker = Tracker(Kaggle(settings, (held,)))
            with edit_ledger(tracker.path):  # with its lock, no other process writes such files
                remove_leftovers(settings.submissions, (SENT,))
            key = find_earlier(tracker, upload, force=force, not_there=not_there)
            if key is None and dry_run:
                message = upload.message(make_key(datetime.now(UTC)))
                return Outcome(DONE, f"Nothing was sent. The message would be: {message}")
            key = key or send(tracker, upload)
        return follow(tracker, key)
    except UnknownError as error:
        return Outcome(NOT_KNOWN, str(error))
    except KeyboardInterrupt:
        return Outcome(NOT_KNOWN, "Stopped. Run the same command again: it looks what arrived.")


def find_earlier(
    tracker: Tracker, upload: Upload, *, force: bool, not_there: bool = False
) -> str | None:
    """Return the key of an earlier submission of this file, so that it need not be sent again.

    That submission is pending, or has just been found in Kaggle's list. The result is None if the
    file may be sent. Unless `force`, raises InputError if Kaggle already has another submission of
    this file, or no submission remains. `not_there`: see submit.
    """
    ledger = tracker.read()
    if not force:
        waiting = _refuse_known(ledger, upload)
        if waiting:
            return waiting
    known = {line["key"] for line in ledger.of_file(upload.fingerprint)}
    known -= {line["key"] for line in ledger.in_doubt()}
    listed, limits = tracker.reconcile(not_there=not_there)
    same = tracker.read().of_file(upload.fingerprint)
    arrived = [line["key"] for line in same if line["key"] not in known]
    if arrived:  # even with `force`: an earlier attempt to send this file succeeded
        return arrived[-1]
    if not force:
        _refuse_listed(listed, upload, tracker.path)
        limits = limits or tracker.kaggle.ask_limits()
        if limits is None:
            say(LIMITS_UNKNOWN)
        else:
            _check_limits(listed, limits, tracker.settings.competition)
    return None


def send(tracker: Tracker, upload: Upload) -> str:
    """Upload, with retries, until Kaggle's list shows the submission; return its key. Raises
    InputError if it did not arrive, UnknownError if that is not known."""
    settings = tracker.settings
    wait = settings.wait_seconds
    for left in reversed(range(settings.tries)):
        key, failure = _send_once(tracker, upload)
        state = _reconcile(tracker, key, failure)
        if state not in (*IN_DOUBT, "failed"):
            return key
        if state in IN_DOUBT or failure is None:
            raise UnknownError(f"{key}: {_tell(failure)} It is not listed so far. {ADVICE}")
        if not left or not failure.kind.passing:
            raise InputError(f"Nothing was submitted. {failure}")
        pause(wait, "It did not arrive, trying again soon")
        wait *= 2
    raise AssertionError("unreachable")


def follow(tracker: Tracker, key: str) -> Outcome:
    """Wait for the score of a listed submission and return the outcome. An error while waiting only
    adds to the message, because the submission has arrived."""
    settings, line, problem = tracker.settings, Line(), ""
    deadline = time.monotonic() + settings.score_seconds
    wait, has_looked = 0.0, False
    try:
        while found := tracker.read().find(key):
            line = found
            if line["state"] != "pending" or (has_looked and time.monotonic() + wait > deadline):
                break  # scored, rejected, or the time is over after Kaggle was asked at least once
            pause(wait, "Waiting for the score")
            wait, has_looked = max(settings.poll_seconds, min(wait * 1.5, LONGEST_POLL)), True
            try:
                tracker.look()
                problem = ""
            except KaggleError as error:
                problem = f" {error}"
                if not error.kind.passing:
                    break
    except (InputError, OSError) as error:  # the ledger cannot be read or written
        problem = f" {error}"
    except KeyboardInterrupt:
        problem = " Stopped waiting for it."
    return _describe(key, line, problem)


def _send_once(tracker: Tracker, upload: Upload) -> tuple[str, KaggleError | None]:
    now = datetime.now(UTC)
    key = make_key(now)
    file = upload.store(tracker.settings.submissions / SENT, key)
    tracker.begin(key, when=show_time(now), **upload.values)
    try:
        tracker.kaggle.upload(file, upload.message(key))
    except KaggleError as error:
        return key, error
    return key, None


def _reconcile(tracker: Tracker, key: str, failure: KaggleError | None) -> str:
    """Return the submission's state after asking Kaggle; raise UnknownError if that fails.
    `failure`: the error of the upload; None if Kaggle answered that it was submitted."""
    try:
        if failure is None:
            tracker.accept(key)
        tracker.reconcile()
        return (tracker.read().find(key) or {"state": "sending"})["state"]
    except (InputError, OSError) as error:
        raise UnknownError(
            f"{key}: {_tell(failure)} Whether it arrived is not known yet, because the look "
            f"failed: {error} Run the same command again: it looks first, and sends the file only "
            "if it did not arrive."
        ) from error


def _tell(failure: KaggleError | None) -> str:
    return "Kaggle said that it was submitted." if failure is None else str(failure)


def _refuse_known(ledger: Ledger, upload: Upload) -> str | None:
    """Return the key of a pending submission of the same file; None if there is none. Raises
    InputError if Kaggle has already scored or rejected a submission of this file."""
    for line in reversed(ledger.of_file(upload.fingerprint)):
        if line["state"] == "pending":
            return line["key"]
        if line["state"] not in IN_DOUBT:
            raise InputError(
                f"{upload.file}: the same file was submitted on {line['when']} as {line['key']} "
                f"(public {line['public'] or '-'}, private {line['private'] or '-'}). It would "
                "score the same. To send it anyway, give --force (make: FORCE=1)."
            )
    return None


def _refuse_listed(listed: list[Submission], upload: Upload, ledger: Path) -> None:
    for submission in listed:
        if submission.field("file") == upload.fingerprint:
            raise InputError(
                f"{upload.file}: Kaggle has the same file as number {submission.ref} of "
                f"{submission.date}, which may be missing in {ledger}. `make scores` adds it. To "
                "send it anyway, give --force (make: FORCE=1)."
            )


def _check_limits(listed: list[Submission], limits: SubmissionLimits, competition: str) -> None:
    """Raise InputError if no submission is left, or if Kaggle lists no submission but counts some:
    then the list must be wrong."""
    if not listed and limits.numTotal > 0:
        raise InputError(
            f"{competition}: Kaggle lists no submission but counts {limits.numTotal}, so it is "
            "unknown whether it has this file already. Run the same command again in some minutes. "
            "To send it anyway, give --force (make: FORCE=1)."
        )
    if limits.numAllowedNow <= 0:
        raise InputError(
            f"{competition}: no submission is left now ({limits.numToday} made today, "
            f"{limits.numTotal} in all). Kaggle counts a day in UTC. If none was made, join the "
            "competition and accept its rules first. To try anyway, give --force (make: FORCE=1)."
        )


def _describe(key: str, line: Line, problem: str) -> Outcome:
    name = f"{key} (Kaggle's number {line.get('ref') or 'unknown'})"
    if line.get("state") == "scored":
        public, private = line["public"] or "hidden", line["private"] or "hidden"
        return Outcome(DONE, f"Submitted: {name}. Public score {public}, private {private}.")
    if line.get("state") == "error":
        return Outcome(
            NOT_SCORED,
            f"Submitted: {name}, but Kaggle could not score it. The competition's page says why, "
            "under Submissions.",
        )
    return Outcome(
        DONE, f"Submitted: {name}. It has no score yet; `make scores` fetches it.{problem}"
    )
