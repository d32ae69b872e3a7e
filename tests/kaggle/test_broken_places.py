"""A CLI, a disk, folders and files that are broken: a message says so, nothing hangs or stays."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kaggle.place import Place
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import CREATE, LIST, Fault
from tests.processes import KAGGLE

SAMPLE = "sample_submission.csv"


def use_program(place: Place, text: str) -> Path:
    """Let the kaggle CLI be a script."""
    program = place.folder / "kaggle"
    program.write_text(text)
    program.chmod(0o755)
    place.more["FASTSLOW_KAGGLE"] = str(program)
    return program


@pytest.mark.parametrize("text", ["no program", "#!/nowhere/python\n"])
def test_a_cli_that_cannot_be_run_is_named(place: Place, text: str) -> None:
    """As after the environment was moved, for its first line names the Python of before."""
    program = use_program(place, text)
    for done in (place.submit(), place.call("scores")):
        assert done.code == 2
        assert f"{program}: the kaggle CLI cannot be run (" in done.words
        assert "--force-reinstall" in done.words


def test_what_a_killed_call_began_is_not_waited_for(place: Place) -> None:
    """A script that calls the CLI is killed when its time is over; its child keeps the pipes."""
    use_program(place, "#!/bin/bash\nsleep 30\n")
    place.more |= {"FASTSLOW_CALL_SECONDS": "0.5", "FASTSLOW_TRIES": "1"}
    begun = time.monotonic()
    done = place.call("scores")
    assert time.monotonic() - begun < 20
    assert "0.5 seconds" in done.words


@pytest.mark.skipif(sys.platform != "linux", reason="no limit can be given to another process")
def test_an_answer_that_inflates_to_gigabytes_is_not_kept(place: Place) -> None:
    place.more["FASTSLOW_KAGGLE"] = str(KAGGLE.program)  # which a limit reaches
    place.world.faults = [Fault(LIST, "bomb")]
    done = place.call("scores")
    assert done.code == 2
    assert "larger than" in done.words
    assert "Traceback" not in done.words


def test_a_file_that_is_larger_than_kaggle_lists_does_not_fill_the_disk(place: Place) -> None:
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
    place.more["FASTSLOW_KAGGLE"] = str(KAGGLE.program)
    # The CLI tries again for a minute by itself.
    place.more |= {"FASTSLOW_DOWNLOAD_SECONDS": "6", "FASTSLOW_TRIES": "1"}
    name = f"npz_all/npz/layout/nlp/default/test/{SAMPLE}"
    world = place.world
    world.files = {name: bytes(20 << 20)}
    listed = world.on_ListDataFiles
    world.on_ListDataFiles = lambda body: {  # type: ignore[method-assign]
        "files": [{**file, "totalBytes": 10} for file in listed(body)["files"]]
    }
    done = place.call("data", "there", "--collection", "layout:nlp:default")
    assert done.code == 2, done.words
    sizes = [path.stat().st_size for path in (place.folder / "there").rglob("*") if path.is_file()]
    assert 0 < sum(sizes) < 3 << 20


def test_a_disk_that_is_full_before_the_upload_is_named(place: Place) -> None:
    place.more["FASTSLOW_WAIT_SECONDS"] = "3"
    place.world.faults = [Fault(LIST, "500", times=1)]
    running = place.start(*place.submit_arguments())
    while not place.world.count(LIST):
        assert not running.ends_within(0.02)
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
    resource.prlimit(running.number, resource.RLIMIT_FSIZE, (1000, 1000))
    done = running.finish()
    assert done.code == 2
    assert f"{place.folder}/submissions/sent: File too large. Make room" in done.words
    assert place.world.count(CREATE) == 0


def test_a_full_disk_below_the_output_does_not_say_that_nothing_was_sent(place: Place) -> None:
    if sys.platform != "linux":
        pytest.skip("no limit can be given to another process")
    place.world.faults, place.more["FASTSLOW_WAIT_SECONDS"] = [Fault(LIST, "500", times=1)], "3"
    printed = place.folder / "printed"
    printed.write_bytes(bytes(10**5))  # more than the files of a submission have
    command = [sys.executable, "-m", "solution.cli", *place.submit_arguments()]
    with printed.open("ab") as file:
        running = subprocess.Popen(
            command, cwd=place.folder, env=place.environment(), stdout=file, stderr=subprocess.PIPE
        )
    while not place.world.count(LIST):
        assert running.poll() is None
        time.sleep(0.02)
    size = printed.stat().st_size
    assert size > 10**5
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, size))
    _, errors = running.communicate(timeout=100)
    assert running.returncode == 0, errors
    assert b"Submitted: " in errors
    assert_made_once(place)


def test_a_ledger_that_is_a_broken_link_is_told_by_all(place: Place) -> None:
    path = place.folder / "submissions" / "ledger.csv"
    path.parent.mkdir()
    path.symlink_to("/nowhere/ledger.csv")
    words = "expected a ledger that can be read, but: No such file or directory."
    for arguments in (["scores"], ["leaderboard"], ["doctor"], place.submit_arguments()):
        done = place.call(*arguments)
        assert done.code == 2
        assert "".join(words.split()) in "".join(done.words.split()), arguments
    assert path.is_symlink()


def test_a_row_of_no_collection_is_told_with_the_file(place: Place) -> None:
    assert place.call("ensemble", "run/mine.toml", "--run", "run").code == 0
    rows = place.run.submission.read_text()
    (place.run.folder / SAMPLE).write_text(f"{rows}foo,0;1;2;3;4\n")
    done = place.submit()
    assert done.code == 2
    assert all(fact in done.words for fact in ("run/submission.csv", "1 row", "no"))
    assert place.world.calls == []
