"""Pushes and pulls that go wrong: clear words, and the same command again puts it right.

The real CLI, a stand-in for Kaggle, and a dataset of one small wheel, so that uploads are quick.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from solution.serving.bundle import DEFAULT
from solution.sessions.record import SessionRecord, State, write_session_record
from submissions.kernels.installing import MANIFEST, SCRIPT
from submissions.kernels.notebooks import find_notebook
from submissions.kernels.packaging import name_commit
from submissions.kernels.pushes import Push, Pushes
from submissions.provenance import read_tree
from tests.conftest import REPOSITORY
from tests.kaggle.desk import SECRET, USER, Desk, Done, check
from tests.kaggle.kernel_world import SAVE, SOURCE, Kernel
from tests.kaggle.world import GET, PUT, Fault
from tests.test_readme import COMMANDS, KERNELS

NAME, KERNEL = "5-leaderboard", f"{USER}/fast-or-slow-5-leaderboard"
DATASET = f"{USER}/fast-or-slow-wheels"
WHEEL = "fast_or_slow-0.1.0-py3-none-any.whl"
DONE, FAILED, UNKNOWN = 0, 2, 3
LEDGER = b"key,when\n"


@pytest.fixture
def shop(desk: Desk, tmp_path: Path) -> Desk:
    """A desk with a package of the code as it is now, of one wheel that nobody installs."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL).write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    commit = name_commit(read_tree())
    manifest = {"commit": commit, "python": "3.12", "wheels": {WHEEL: digest}}
    (wheels / MANIFEST).write_text(json.dumps({"project": "fast-or-slow", **manifest}))
    (wheels / SCRIPT).write_text("# installs\n")
    desk.more |= {"FASTSLOW_WHEELS": str(wheels), "FASTSLOW_TRIES": "1"}
    return desk


def push(shop: Desk, *options: str) -> Done:
    return shop.call("kernels", "push", NAME, "--allow-dirty", *options)


def pull(shop: Desk, *options: str) -> Done:
    return shop.call("kernels", "pull", NAME, *options)


def read_latest(shop: Desk, name: str = NAME) -> Push:
    """The newest push of the notebook in the records."""
    text = (shop.folder / "runs" / "kernels" / f"{name}.json").read_text()
    return Pushes.model_validate_json(text).pushes[-1]


def finish_session(
    shop: Desk, state: State = "finished", name: str = NAME, ledger: bytes = LEDGER, **changes: str
) -> Kernel:
    """Let the latest push have run: its outputs are a record and two files."""
    latest = read_latest(shop, name)
    folder = shop.folder / "session"
    (folder / "run").mkdir(parents=True, exist_ok=True)
    (folder / "run" / "predictions.parquet").write_bytes(b"predictions")
    (folder / "ledger.csv").write_bytes(ledger)
    values = {"notebook": name, "push": latest.key, "commit": latest.commit, **changes}
    write_session_record(SessionRecord(state=state, note="3 models are left", **values), folder)
    kernel = shop.world.kernels[latest.kernel]
    kernel.outputs = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    kernel.log = "a line of the log\n"
    return kernel


def test_a_push_and_a_pull(shop: Desk) -> None:
    """The dataset is uploaded once, whole; the outputs come back as they were written."""
    shop.world.processing = 2
    check(push(shop), DONE, "Pushed: tester/fast-or-slow-5-leaderboard, version 1")
    (version,) = shop.world.datasets[DATASET]
    assert {*version} == {WHEEL, MANIFEST, SCRIPT}
    kernel = shop.world.kernels[KERNEL]
    assert kernel.saved[0]["datasetDataSources"] == [DATASET]
    assert kernel.saved[0]["enableInternet"] is True
    latest = read_latest(shop)
    cells = ["".join(cell["source"]) for cell in kernel.notebook["cells"]]
    (injected,) = (text for text in cells if text.startswith("# Set for this execution."))
    assert f"PUSH = '{latest.key}'" in injected
    assert f"COMMIT = '{latest.commit}'" in injected
    kernel.states = ["QUEUED"]
    assert "nothing to" in pull(shop).words

    kernel.states = ["COMPLETE"]
    (shop.folder / "session").mkdir()
    (shop.folder / "session" / "bundle.zip").write_bytes(b"models")
    finish_session(shop)
    assert "finished" in shop.call("kernels", "status").words
    check(pull(shop), DONE, f"rank with it by `fastslow rank FILE --with runs/{NAME}/bundle.zip`")
    outputs = shop.folder / "runs" / NAME
    assert (outputs / "run" / "predictions.parquet").read_bytes() == b"predictions"
    assert list(outputs.glob("*.log"))
    assert not list((shop.folder / "runs" / "kernels").glob(f"{NAME}-*"))

    done = push(shop, "--resume")  # another one: the dataset is there already
    assert done.code == DONE, done.words
    assert len(shop.world.datasets[DATASET]) == 1
    assert kernel.saved[1]["kernelDataSources"] == [KERNEL]
    assert "earlier session" in shop.call("kernels", "status").words
    done = check(pull(shop), FAILED, "earlier session")
    assert SECRET not in done.words + (shop.folder / "runs/kernels" / f"{NAME}.json").read_text()


@pytest.mark.parametrize("counted", [True, False])
def test_the_answer_to_a_push_is_lost(shop: Desk, *, counted: bool) -> None:
    """Kaggle's copy of the source says whether it arrived; it is never pushed twice."""
    shop.world.faults = [Fault(SAVE, "lost", times=1, counted=counted)]
    check(push(shop), DONE if counted else FAILED)
    latest = read_latest(shop)
    assert latest.state == ("pushed" if counted else "failed")
    if not counted:
        assert push(shop).code == DONE
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_nobody_knows_whether_a_push_arrived(shop: Desk) -> None:
    """The look failed too; the same command looks first, and pushes nothing new."""
    shop.world.faults = [Fault(SAVE, "lost", counted=True), Fault(SOURCE, "500")]
    check(push(shop), UNKNOWN, "looks first")
    shop.world.faults = []
    check(push(shop), DONE, "arrived already")
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_a_push_is_killed(shop: Desk) -> None:
    """After Kaggle had it: the same command finds that, and says so."""
    shop.world.faults = [Fault(SAVE, "hangs", counted=True)]
    running = shop.start("kernels", "push", NAME, "--allow-dirty")
    while not shop.world.kernels and not running.ends_within(0.02):
        pass
    os.killpg(running.number, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    latest = read_latest(shop)
    assert latest.state == "pushing"
    shop.world.faults = []
    check(push(shop), DONE, "arrived already")
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_kaggle_does_not_take_a_push(shop: Desk) -> None:
    """Its words are shown; a push without its dataset is no success."""
    shop.world.push_refusal = "Maximum weekly GPU quota reached"
    check(push(shop), FAILED, "weekly GPU quota")
    shop.world.push_refusal = ""
    shop.world.invalid_datasets = [DATASET]
    check(push(shop), FAILED, "not valid")
    assert "never pushed" in pull(shop).words


def test_the_dataset_is_refused_and_then_fails(shop: Desk) -> None:
    shop.world.dataset_refusal = "The title is already in use"
    check(push(shop), FAILED, "already")
    shop.world.dataset_refusal = ""
    shop.world.dataset_state = "FAILED"
    check(push(shop), FAILED, "status failed")
    assert KERNEL not in shop.world.kernels
    shop.world.dataset_state = "READY"
    assert push(shop).code == DONE


def test_a_file_of_the_dataset_does_not_arrive(shop: Desk) -> None:
    """The CLI makes the dataset without it and exits with 0; a whole version follows."""
    shop.more["FASTSLOW_TRIES"] = "2"
    shop.world.faults = [Fault(PUT, "403", times=1)]
    check(push(shop))
    assert {*shop.world.datasets[DATASET][-1]} == {WHEEL, MANIFEST, SCRIPT}


def test_a_failed_kernel_shows_why(shop: Desk) -> None:
    assert push(shop).code == DONE
    kernel = shop.world.kernels[KERNEL]
    kernel.states, kernel.failure = ["ERROR"], "Your notebook tried to allocate more memory"
    kernel.log = "MemoryError: 31 GB\n"
    check(pull(shop), FAILED, "allocate", "MemoryError: 31 GB")
    assert not (shop.folder / "runs" / NAME).exists()


def test_outputs_that_are_not_whole_are_refused(shop: Desk) -> None:
    """Half a run, another commit, an error page instead of a file, and local files."""
    assert push(shop).code == DONE
    finish_session(shop, "stopped")
    check(pull(shop), FAILED, "3 models", "RESUME=1")
    finish_session(shop, commit="0" * 40)
    check(pull(shop), FAILED, "Push")

    finish_session(shop)
    shop.world.faults = [Fault(GET, "html", first=shop.world.count(GET) + 2)]
    check(pull(shop), FAILED, "record")
    shop.world.faults = [Fault(GET, "html", first=shop.world.count(GET) + 3)]
    check(pull(shop), FAILED, "arrived damaged")
    assert not (shop.folder / "runs" / NAME).exists()
    shop.world.faults = []
    mine = shop.folder / "runs" / NAME / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    check(pull(shop), FAILED, "made or changed here")
    check(pull(shop, "--replace"))
    assert not mine.exists()


def test_the_commands_of_the_readme(shop: Desk) -> None:
    """In their order; every session finishes as soon as it is looked at."""
    shop.more["FASTSLOW_RUNS"] = str(shop.folder / "runs")
    commands = [words for words in COMMANDS if words[0] == "make" and words[1] in KERNELS]
    assert {words[1] for words in commands} == KERNELS
    for words in commands:
        if words[1] == "kernels-pull":
            (shop.folder / "session").mkdir(exist_ok=True)
            shutil.copyfile(DEFAULT, shop.folder / "session" / "bundle.zip")
            finish_session(shop, name=find_notebook(words[2].partition("=")[2]).name)
        words = [word.replace("=runs/", f"={shop.folder}/runs/") for word in words]  # noqa: PLW2901
        extra = ["DIRTY=1"] if words[1] == "kernels-push" else []
        command = [words[0], "--old-file=.venv/.installed", *words[1:], *extra]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=shop.environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    arguments = ["make", "--dry-run", "kernels-push", "NOTEBOOK=2", "SET=FOLDS=0,1 HOURS=8"]
    shown = subprocess.run([*arguments, "RESUME=1"], cwd=REPOSITORY, capture_output=True, text=True)
    assert 'push "2" --set "FOLDS=0,1" --set "HOURS=8" --resume' in shown.stdout
