"""A CLI, a disk, folders and files that are broken: a message says so, nothing hangs or stays."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kaggle.desk import Desk, check
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import CREATE, LIST, Fault
from tests.processes import KAGGLE

SAMPLE = "sample_submission.csv"


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


@pytest.mark.skipif(sys.platform != "linux", reason="no limit can be given to another process")
def test_an_answer_that_inflates_to_gigabytes_is_not_kept(desk: Desk) -> None:
    desk.more["FASTSLOW_KAGGLE"] = str(KAGGLE.program)  # which a limit reaches
    desk.world.faults = [Fault(LIST, "bomb")]
    done = check(desk.call("scores"), 2, "larger than")
    assert "Traceback" not in done.words


def test_a_file_that_is_larger_than_kaggle_lists_does_not_fill_the_disk(desk: Desk) -> None:
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
    desk.more["FASTSLOW_KAGGLE"] = str(KAGGLE.program)
    # The CLI tries again for a minute by itself.
    desk.more |= {"FASTSLOW_DOWNLOAD_SECONDS": "6", "FASTSLOW_TRIES": "1"}
    name = f"npz_all/npz/layout/nlp/default/test/{SAMPLE}"
    world = desk.world
    world.files = {name: bytes(20 << 20)}
    listed = world.on_ListDataFiles
    world.on_ListDataFiles = lambda body: {  # type: ignore[method-assign]
        "files": [{**file, "totalBytes": 10} for file in listed(body)["files"]]
    }
    check(desk.call("data", "there", "--collection", "layout:nlp:default"), 2)
    sizes = [path.stat().st_size for path in (desk.folder / "there").rglob("*") if path.is_file()]
    assert 0 < sum(sizes) < 3 << 20


def test_a_disk_that_is_full_before_the_upload_is_named(desk: Desk) -> None:
    desk.more["FASTSLOW_WAIT_SECONDS"] = "3"
    desk.world.faults = [Fault(LIST, "500", times=1)]
    running = desk.start_until(LIST)
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
    resource.prlimit(running.number, resource.RLIMIT_FSIZE, (1000, 1000))
    check(running.finish(), 2, f"{desk.folder}/submissions/sent: File too large. Make room")
    assert desk.world.count(CREATE) == 0


def test_a_full_disk_below_the_output_does_not_say_that_nothing_was_sent(desk: Desk) -> None:
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
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
