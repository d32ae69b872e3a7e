"""What breaks or changes while a submit is at work: ledger, list, CLI, disk, files."""

import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from submissions.ledger import edit_ledger, show_time
from tests.kaggle.desk import Desk, assert_made_once, check
from tests.kaggle.world import CREATE, LIST, Fault
from tests.processes import KAGGLE

HEADER = "key,when,state,ref,notes"
LATE, QUIET = 3.0, 5.0  # seconds; a look follows the answer sooner than that
PASSING = Fault(CREATE, "503", times=1, counted=True, message="Deadline exceeded")


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
    desk.add_earlier()
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
    desk.add_earlier()
    after_calls(desk, "submit", "sed -i '/sending/s/,2[0-9]*-/,2020-/' $LEDGER")
    desk.world.late, desk.world.faults = LATE, [PASSING]
    desk.more["FASTSLOW_QUIET_SECONDS"] = str(QUIET)
    check(desk.submit())
    assert_made_once(desk)


@pytest.mark.parametrize("times", [2, 11])
def test_what_is_listed_more_than_once_proves_nothing(desk: Desk, times: int) -> None:
    """What arrived is counted, but not listed yet; a list in the wrong order proves nothing."""
    desk.add_earlier()
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
def test_what_kaggle_took_and_never_lists_is_sent_once(desk: Desk, force: tuple[str, ...]) -> None:
    desk.add_earlier()
    desk.world.late = 10**6
    done = [desk.submit(*force) for _ in range(2)]
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
    desk.add_earlier()
    desk.world.late = 10**6
    assert desk.submit().code == 3
    with edit_ledger(desk.ledger_path) as ledger:
        ledger.lines[0]["when"] = show_time(datetime.now(UTC) - timedelta(minutes=61))
    desk.world.late = 0
    assert desk.submit().code == 0
    assert desk.world.count(CREATE) == 2


def test_what_is_not_there_is_looked_for_all_the_same(desk: Desk) -> None:
    """The user says that it is missing, and Kaggle lists it by now."""
    desk.add_earlier()
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


SAMPLE = "sample_submission.csv"
LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="no limit can be given to another process"
)


def use_program(desk: Desk, text: str) -> Path:
    """Let the kaggle CLI be a script."""
    program = desk.folder / "kaggle"
    program.write_text(text)
    program.chmod(0o755)
    desk.more["FASTSLOW_KAGGLE"] = str(program)
    return program


@pytest.mark.parametrize("text", ["no program", "#!/nowhere/python\n"])
def test_a_cli_that_cannot_be_run_is_named(desk: Desk, text: str) -> None:
    """As after the environment was moved, for its first line names the Python of before."""
    program = use_program(desk, text)
    for done in (desk.submit(), desk.call("scores")):
        assert done.code == 2
        assert f"{program}: the kaggle CLI cannot be run (" in done.words
        assert "--force-reinstall" in done.words


def test_what_a_killed_call_began_is_not_waited_for(desk: Desk) -> None:
    """A script that calls the CLI is killed when its time is over; its child keeps the pipes."""
    use_program(desk, "#!/bin/bash\nsleep 30\n")
    desk.more |= {"FASTSLOW_CALL_SECONDS": "0.5", "FASTSLOW_TRIES": "1"}
    begun = time.monotonic()
    done = desk.call("scores")
    assert time.monotonic() - begun < 20
    assert "0.5 seconds" in done.words


@LINUX
def test_a_disk_that_is_full_before_the_upload_is_named(desk: Desk) -> None:
    desk.more["FASTSLOW_WAIT_SECONDS"] = "3"
    desk.world.faults = [Fault(LIST, "500", times=1)]
    running = desk.start_until(LIST)
    resource.prlimit(running.number, resource.RLIMIT_FSIZE, (1000, 1000))
    check(running.finish(), 2, f"{desk.folder}/submissions/sent: File too large. Make room")
    assert desk.world.count(CREATE) == 0


@LINUX
def test_a_full_disk_below_the_output_does_not_say_that_nothing_was_sent(desk: Desk) -> None:
    desk.world.faults, desk.more["FASTSLOW_WAIT_SECONDS"] = [Fault(LIST, "500", times=1)], "3"
    printed = desk.folder / "printed"
    printed.write_bytes(bytes(10**5))  # more than the files of a submission have
    command = [sys.executable, "-m", "solution.cli", *desk.submit_arguments()]
    with printed.open("ab") as file:
        running = subprocess.Popen(
            command, cwd=desk.folder, env=desk.environment(), stdout=file, stderr=subprocess.PIPE
        )
    while not desk.world.count(LIST):
        assert running.poll() is None
        time.sleep(0.02)
    size = printed.stat().st_size
    assert size > 10**5
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, size))
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 0, errors
    assert b"Submitted: " in errors
    assert_made_once(desk)


def test_a_ledger_that_is_a_broken_link_is_told_by_all(desk: Desk) -> None:
    path = desk.ledger_path
    path.parent.mkdir()
    path.symlink_to("/nowhere/ledger.csv")
    words = "expected a ledger that can be read, but: No such file or directory."
    for arguments in (["scores"], ["leaderboard"], ["doctor"], desk.submit_arguments()):
        done = check(desk.call(*arguments), 2)
        assert "".join(words.split()) in "".join(done.words.split()), arguments
    assert path.is_symlink()


def test_a_row_of_no_collection_is_told_with_the_file(desk: Desk) -> None:
    assert desk.call("ensemble", "run/mine.toml", "--run", "run").code == 0
    rows = desk.run.submission.read_text()
    (desk.run.folder / SAMPLE).write_text(f"{rows}foo,0;1;2;3;4\n")
    check(desk.submit(), 2, "run/submission.csv", "1 row", "no")
    assert desk.world.calls == []
