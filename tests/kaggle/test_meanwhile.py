"""What happens to the ledger, to Kaggle's list and to the clock while a submit is at work."""

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from submissions.ledger import edit_ledger, show_time
from tests.kaggle.desk import Desk, check
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import CREATE, LIST, Fault
from tests.processes import KAGGLE

HEADER = "key,when,state,ref,notes"
LATE, QUIET = 3.0, 5.0  # seconds; a look follows the answer sooner than that
PASSING = Fault(CREATE, "503", times=1, counted=True, message="Deadline exceeded")


def add_earlier(desk: Desk) -> None:
    """Or else Kaggle's counts would be zeros, which prove nothing."""
    row = {"ref": 1, "description": "by hand", "date": "2026-01-01T00:00:00Z"}
    desk.world.submissions.append({**row, "status": "COMPLETE", "publicScore": "0.5"})


def after_calls(desk: Desk, name: str, command: str) -> Path:
    """Let a shell command follow every call of the CLI whose action is `name`; returns the ledger.

    The command finds the ledger's path as $LEDGER.
    """
    ledger, program = desk.ledger_path, desk.folder / "kaggle"
    program.write_text(
        f'#!/bin/bash\nLEDGER={ledger}\n{KAGGLE.stand_in} "$@"\ncode=$?\n'
        f'if [[ " $* " == *" {name} "* ]]; then {command}; fi\nexit $code\n'
    )
    program.chmod(0o755)
    desk.more["FASTSLOW_KAGGLE"] = str(program)
    return ledger


@pytest.mark.parametrize("faults", [[], [PASSING]], ids=["taken", "lost"])
def test_a_ledger_without_the_new_line_sends_nothing_twice(desk: Desk, faults: list[Fault]) -> None:
    """As after `git checkout` or `git stash`, for the ledger is a file of the repository."""
    add_earlier(desk)
    after_calls(desk, "submit", f"echo {HEADER} > $LEDGER")
    desk.world.faults = faults
    check(desk.submit())
    assert_made_once(desk)


def test_a_ledger_that_breaks_afterwards_makes_no_submission_unsent(desk: Desk) -> None:
    ledger = after_calls(desk, "submissions", "[[ -f $LEDGER.sent ]] && echo '<<<<<<<' >> $LEDGER")
    desk.world.pending = 2
    desk.more["FASTSLOW_POLL_SECONDS"] = "1"
    running = desk.start(*desk.submit_arguments())
    while not desk.world.count(CREATE) or ",pending," not in ledger.read_text():
        assert not running.ends_within(0.02)
    ledger.with_name("ledger.csv.sent").touch()
    check(running.finish(), 0, "41000000", f"{ledger}, line 3: an unresolved merge conflict")


def test_a_clock_that_is_set_meanwhile_sends_nothing_twice(desk: Desk) -> None:
    """As after a sleep of the machine: the upload began long ago, and ended just now."""
    add_earlier(desk)
    after_calls(desk, "submit", "sed -i '/sending/s/,2[0-9]*-/,2020-/' $LEDGER")
    desk.world.late, desk.world.faults = LATE, [PASSING]
    desk.more["FASTSLOW_QUIET_SECONDS"] = str(QUIET)
    check(desk.submit())
    assert_made_once(desk)


@pytest.mark.parametrize("times", [2, 11])
def test_what_is_listed_more_than_once_proves_nothing(desk: Desk, times: int) -> None:
    """What arrived is counted, but not listed yet; a list in the wrong order proves nothing."""
    add_earlier(desk)
    rows = desk.world.submissions
    rows += [{**rows[0], "ref": ref, "date": f"2027-01-{ref:02}"} for ref in range(2, 2 * times)]
    before, world = list(rows), desk.world
    world.faults = [PASSING]
    world.on_ListSubmissions = lambda body: {"submissions": before * 2}  # type: ignore[method-assign]
    world.on_GetSubmissionLimits = lambda body: {  # type: ignore[method-assign]
        "numTotal": len(rows),
        "numAllowedNow": 3,
    }
    check(desk.submit(), 3, f"Kaggle lists {len(before)} submissions and counts {len(rows)}")
    assert len(rows) == len(before) + 1


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "forced"])
def test_what_kaggle_took_and_never_lists_nor_counts_is_sent_once(
    desk: Desk, force: tuple[str, ...]
) -> None:
    add_earlier(desk)
    desk.world.late = 10**6
    done = [desk.submit(*force) for _ in range(3)]
    (line,) = desk.ledger.lines
    for one in done:
        assert one.code == 3, one.words
        assert line["key"] in one.words
        assert "NOT_THERE=1" in one.words
    assert "FASTSLOW_ACCEPTED_SECONDS" in done[1].words
    assert (line["state"], desk.world.count(CREATE)) == ("accepted", 1)
    # Only the user can say that it is missing, or time.
    desk.world.late = 0
    check(desk.submit("--not-there", *force))
    assert desk.world.count(CREATE) == 2
    assert {one["state"] for one in desk.ledger.lines} == {"failed", "scored"}


def test_what_kaggle_took_and_does_not_list_for_an_hour_is_sent_again(desk: Desk) -> None:
    add_earlier(desk)
    desk.world.late = 10**6
    assert desk.submit().code == 3
    with edit_ledger(desk.ledger_path) as ledger:
        ledger.lines[0]["when"] = show_time(datetime.now(UTC) - timedelta(minutes=61))
    desk.world.late = 0
    assert desk.submit().code == 0
    assert desk.world.count(CREATE) == 2


def test_what_is_not_there_is_looked_for_all_the_same(desk: Desk) -> None:
    """The user says that it is missing, and Kaggle lists it by now."""
    add_earlier(desk)
    desk.world.late = 2.0
    assert desk.submit().code == 3
    desk.world.submissions[1]["listed"] = 0.0
    check(desk.submit("--not-there"))
    assert_made_once(desk)


@pytest.mark.parametrize("state", ["failed", " Failed"])
def test_what_was_called_missing_and_is_listed_later_counts(desk: Desk, state: str) -> None:
    desk.world.faults, desk.more["FASTSLOW_TRIES"] = [PASSING], "1"
    desk.world.late = 10**6
    assert desk.submit().code == 2
    ledger = desk.ledger_path
    ledger.write_text(ledger.read_text().replace(",failed,", f",{state},"))
    desk.world.submissions[0]["listed"] = 0.0
    check(desk.submit())
    assert_made_once(desk)


def test_ctrl_c_while_the_score_is_awaited(desk: Desk) -> None:
    desk.world.pending = 10**9
    running = desk.start_until(LIST, 4)
    os.kill(running.number, signal.SIGINT)
    check(running.finish(), 0, "`make scores`", "Stopped")


def test_without_a_pause_the_wait_for_a_score_ends_all_the_same(desk: Desk) -> None:
    desk.more |= {"FASTSLOW_POLL_SECONDS": "0", "FASTSLOW_SCORE_SECONDS": "0.5"}
    desk.world.pending = 10**9
    running = desk.start(*desk.submit_arguments())
    if not running.ends_within(30):
        os.kill(running.number, signal.SIGKILL)
    assert running.finish().code == 0


def test_a_long_upload_of_a_submit_that_was_killed_is_no_wrong_clock(desk: Desk) -> None:
    desk.world.faults, desk.world.late = [PASSING], 10**6
    desk.more |= {"FASTSLOW_TRIES": "1", "FASTSLOW_UPLOAD_SECONDS": "600"}
    assert desk.submit().code == 2
    with edit_ledger(desk.ledger_path) as ledger:
        begun = show_time(datetime.now(UTC) - timedelta(minutes=8))
        ledger.lines[0] |= {"state": "sending", "when": begun}
    desk.world.submissions[0]["listed"] = 0.0
    done = check(desk.submit())
    assert "clock" not in done.words
