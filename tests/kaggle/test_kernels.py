"""Pushes and pulls that go wrong: clear words, and the same command again puts it right.

The real CLI, a stand-in for Kaggle, and a dataset of one small wheel, so that uploads are quick.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import get_args

import pytest

from solution.serving.bundle import DEFAULT
from solution.sessions.record import SessionRecord, State, write_session_record
from solution.sessions.train_session import FOLDS, NOTHING, REFIT
from solution.system.errors import InputError
from solution.training.folds import Scheme
from submissions.kernels.datasets import check_dataset_name
from submissions.kernels.installing import MANIFEST, SCRIPT
from submissions.kernels.notebooks import (
    PACKS,
    SCHEMES,
    find_notebook,
    list_notebooks,
    parse_values,
)
from submissions.kernels.pushes import Push, Pushes
from tests.conftest import REPOSITORY
from tests.kaggle.conftest import WHEEL
from tests.kaggle.desk import SECRET, USER, Desk, Done, check, find_group
from tests.kaggle.world import GET, OUTPUT, PUT, SAVE, SOURCE, Fault, Kernel
from tests.test_readme import COMMANDS, KERNELS

NAME, KERNEL = "5-leaderboard", f"{USER}/fast-or-slow-5-leaderboard"
DATASET = f"{USER}/fast-or-slow-wheels"
TRAINING, ENSEMBLE = "2-train-layout", "4-ensemble-and-submit"
BROKEN = "EXPERIMENTS=layout_*\udcff"  # a byte that is no text, as Python shows one
DONE, FAILED, UNKNOWN = 0, 2, 3
LEDGER = b"key,when\n"


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


def test_a_notebook_that_runs_is_not_pushed_again(shop: Desk) -> None:
    check(push(shop))
    kernel = shop.world.kernels[KERNEL]
    for state in ("QUEUED", "RUNNING"):
        kernel.states = [state]
        check(push(shop), FAILED, KERNEL, state.lower(), "--force")
    assert len(kernel.saved) == 1
    check(push(shop, "--force"))
    kernel.states = ["ERROR"]
    check(push(shop, "--resume"))
    assert len(kernel.saved) == 3


def test_what_was_never_pushed_is_not_resumed(shop: Desk) -> None:
    check(push(shop, "--resume"), FAILED, KERNEL, "without --resume")
    assert shop.world.count(SAVE) == 0


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
    assert "kernels-pull" in shop.call("kernels", "status").words
    done = check(pull(shop), FAILED, "allocate", "MemoryError: 31 GB", "push it again")
    assert "kernels-pull" not in done.words
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


def test_a_dataset_that_is_processed_for_long_is_uploaded_once(shop: Desk) -> None:
    """The same command goes on with the wait."""
    shop.more["FASTSLOW_READY_SECONDS"] = "0.01"
    shop.world.processing = 9
    for _ in range(2):
        check(push(shop), FAILED, "it goes")
    shop.world.processing = 1
    shop.more["FASTSLOW_READY_SECONDS"] = "60"
    check(push(shop))
    assert len(shop.world.datasets[DATASET]) == 1


@pytest.mark.parametrize(("answer", "is_late"), [
    ("API rate limit exceeded", False), ("Connection refused", True), ("Kernel not found", True),
])  # fmt: skip
def test_what_kaggle_took_runs_once_whatever_it_answered(
    shop: Desk, answer: str, is_late: bool
) -> None:
    """Its source may be shown only a little later."""
    late = [Fault(SOURCE, "403", times=1)] if is_late else []
    shop.world.faults = [Fault(SAVE, "503", times=1, counted=True, message=answer), *late]
    check(push(shop))
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_the_source_of_a_kernel_is_written_where_no_name_can_lead(shop: Desk) -> None:
    shop.world.faults = [Fault(SAVE, "503", times=1, counted=True)]
    shown = shop.world.on_GetKernel
    escaped = str(shop.folder / "escaped")
    shop.world.on_GetKernel = lambda body: {  # type: ignore[method-assign]
        "blob": {**shown(body)["blob"], "slug": escaped}
    }
    assert push(shop).code == DONE
    assert len(shop.world.kernels[KERNEL].saved) == 1
    assert not list(shop.folder.glob("escaped*"))


@pytest.mark.parametrize(("call", "number"), [(SAVE, signal.SIGTERM), (OUTPUT, signal.SIGHUP)])
def test_a_signal_ends_the_kaggle_cli_too(shop: Desk, call: str, number: signal.Signals) -> None:
    """And the same command goes on afterwards."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests were begun by nohup, and so are the commands")
    command, again = (("push", NAME, "--allow-dirty"), push)
    if call == OUTPUT:
        assert push(shop).code == DONE
        finish_session(shop)
        command, again = ("pull", NAME), pull
    shop.world.faults = [Fault(call, "hangs", counted=True)]
    running = shop.start("kernels", *command)
    while not shop.world.count(call) and not running.ends_within(0.02):
        pass
    assert len(find_group(running.number)) > 1
    os.kill(running.number, number)
    done = running.finish()
    assert (done.code, "Traceback" in done.words) == (128 + number, False), done.words
    for _ in range(200):
        left = find_group(running.number)
        if not left:
            break
        time.sleep(0.05)
    assert not left
    shop.world.faults = []
    check(again(shop))


def test_what_cannot_be_the_name_of_a_bundle_is_refused(shop: Desk) -> None:
    for name in ("/b", "-h/x", "a/b/c", "a/", "a /b", "My models"):
        with pytest.raises(InputError, match=f"^{name!r}: expected"):
            check_dataset_name(name)
    done = shop.call("kernels", "push", "4", "--allow-dirty", "--bundle=-h/x")
    check(done, FAILED, "'-h/x': expected")
    assert shop.world.calls == []


def test_records_that_cannot_be_written_are_told_by_their_folder(shop: Desk) -> None:
    """No folder, and one that is nobody's to write."""
    (shop.folder / "file").write_text("mine")
    shop.more["FASTSLOW_RUNS"] = str(shop.folder / "file")
    check(push(shop), FAILED, "a file")
    shop.more["FASTSLOW_RUNS"] = "/proc/runs"
    check(push(shop), FAILED, "/proc/runs", "not be")
    assert shop.world.calls == []


def test_what_no_record_can_hold_is_not_pushed(shop: Desk) -> None:
    """The records can be read afterwards, and the next push is as any other."""
    for pair in ("HOURS=nan", "HOURS=inf", "HOURS=1e400", BROKEN):
        with pytest.raises(InputError, match="such as"):
            parse_values([pair], find_notebook(TRAINING).read())
    done = shop.call("kernels", "push", TRAINING, "--allow-dirty", "--set", BROKEN)
    check(done, FAILED, "such as")
    assert shop.world.calls == []
    assert "never pushed" in shop.call("kernels", "status").words


def test_numbers_and_texts_that_fit_are_recorded(shop: Desk) -> None:
    options = ("--set", "HOURS=8", "--set", "FOLDS=0, 1", "--set", "PACK=")
    check(shop.call("kernels", "push", TRAINING, "--allow-dirty", *options))
    latest = read_latest(shop, TRAINING)
    assert latest.values == {"HOURS": 8.0, "FOLDS": "0, 1", "PACK": ""}


@pytest.mark.parametrize(("notebook", "pair", "expected"), [
    *((TRAINING, *given) for given in (
        ("HOURS=-1", "0 or more"), ("NUM_FOLDS=1", "2 or more"),
        ("SCHEME=program", "architecture or"),
        ("PACK=all", "refit or"), ("FOLDS=0,5", "numbers below NUM_FOLDS"),
        ("FOLDS=first", "numbers below NUM_FOLDS"), ("EXPERIMENTS=tiles_*", "layout_gnn_001"),
        ("COLLECTIONS=layout:tpu:*", "layout:xla:random"), ("PUSH=mine", "push sets"),
        ("COLLECTIONS=tile:*", "experiment ranks"),
        ("COMMIT=mine", "push sets"))),
    (TRAINING, "RECIPE=nope", "z_score_001"), (ENSEMBLE, "RECIPE=nope", "z_score_001"),
    ("1", "GRAPHS=0", "1 or more"),
    (ENSEMBLE, "SOURCES=2-*,9-*", "2-"), (ENSEMBLE, "SOURCES=", "2-"),
    (ENSEMBLE, "BUNDLE=mine", "--bundle"), (ENSEMBLE, "RECEIPT=mine", r"one of RECIPE, SOURCES\."),
    ("5", "HOURS=1", "no parameter"),
])  # fmt: skip
def test_what_cannot_work_is_refused_by_name(notebook: str, pair: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as refusal:
        parse_values([pair], find_notebook(notebook).read())
    assert pair.partition("=")[0] in str(refusal.value)


def test_experiments_are_those_of_the_recipe_that_is_given_with_them() -> None:
    found = find_notebook(TRAINING).read()
    parse_values(["EXPERIMENTS=layout_cost_*"], found)
    for other in ("RECIPE=z_score_001", "LIMIT=1"):
        with pytest.raises(InputError, match="layout_gnn_001"):
            parse_values(["EXPERIMENTS=layout_cost_*", other], found)


def test_folds_are_of_the_number_that_is_given_with_them() -> None:
    found = find_notebook(TRAINING).read()
    assert parse_values(["FOLDS=7", "NUM_FOLDS=8"], found) == {"FOLDS": "7", "NUM_FOLDS": 8}


def test_what_the_notebooks_have_and_what_they_understand_fits() -> None:
    for notebook in list_notebooks():
        assert parse_values([], notebook.read()) == {}
    assert get_args(Scheme) == SCHEMES
    assert set(PACKS) == {NOTHING, FOLDS, REFIT}


@pytest.mark.parametrize("command", [("package",), ("push", NAME)])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_of_the_users_is_not_deleted(
    desk: Desk, tmp_path: Path, command: tuple[str, ...], *, is_folder: bool
) -> None:
    """Nor is a file; the message names it, and what to do."""
    photos = tmp_path / "photos"
    mine = photos / "mine.jpg" if is_folder else photos
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    desk.more["FASTSLOW_WHEELS"] = str(photos)
    done = desk.call("kernels", *command, "--allow-dirty")
    check(done, FAILED, f"{photos}: expected", "FASTSLOW_WHEELS")
    assert mine.read_bytes() == b"mine"


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
