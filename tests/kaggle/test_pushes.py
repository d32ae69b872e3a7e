"""Pushes that are stopped while they wait, and what is refused before anything is asked."""

import math
import os
import signal
import time
from pathlib import Path
from typing import get_args

import pytest

from solution.sessions.train_session import FOLDS, NOTHING, REFIT
from solution.system.errors import InputError
from solution.training.folds import Scheme
from submissions.kernels.notebooks import (
    PACKS,
    SCHEMES,
    find_notebook,
    list_notebooks,
    parse_values,
)
from tests.kaggle.desk import Desk, check, find_group
from tests.kaggle.kernel_world import OUTPUT, SAVE, SOURCE
from tests.kaggle.test_kernels import (
    DATASET,
    DONE,
    FAILED,
    KERNEL,
    NAME,
    finish_session,
    pull,
    push,
    read_latest,
    shop,
)
from tests.kaggle.world import Fault

__all__ = ["shop"]  # a fixture


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


@pytest.mark.parametrize("late", [[], [Fault(SOURCE, "403", times=1)]], ids=["at once", "late"])
@pytest.mark.parametrize(
    "answer", ["API rate limit exceeded", "Connection refused", "Kernel not found"]
)
def test_what_kaggle_took_runs_once_whatever_it_answered(
    shop: Desk, answer: str, late: list[Fault]
) -> None:
    """Its source may be shown only a little later."""
    shop.world.faults = [Fault(SAVE, "503", times=1, counted=True, message=answer), *late]
    check(push(shop))
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_the_source_of_a_kernel_is_written_where_the_name_from_kaggle_cannot_lead(
    shop: Desk,
) -> None:
    shop.world.faults = [Fault(SAVE, "503", times=1, counted=True)]
    shown = shop.world.on_GetKernel
    escaped = str(shop.folder / "escaped")
    shop.world.on_GetKernel = lambda body: {  # type: ignore[method-assign]
        "blob": {**shown(body)["blob"], "slug": escaped}
    }
    assert push(shop).code == DONE
    assert len(shop.world.kernels[KERNEL].saved) == 1
    assert not list(shop.folder.glob("escaped*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("call", [SAVE, OUTPUT])
def test_a_signal_ends_the_kaggle_cli_as_well(
    shop: Desk, call: str, number: signal.Signals
) -> None:
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


@pytest.mark.parametrize("name", ["/b", "-h/x", "a/b/c", "a/", "a /b", "My models"])
def test_what_cannot_be_the_name_of_a_bundle_is_refused(shop: Desk, name: str) -> None:
    check(
        shop.call("kernels", "push", "4", "--allow-dirty", f"--bundle={name}"),
        FAILED,
        f"{name!r}: expected",
    )
    assert shop.world.calls == []


def test_records_that_cannot_be_written_are_told_by_their_folder(shop: Desk) -> None:
    """No folder, and one that is nobody's to write."""
    (shop.folder / "file").write_text("mine")
    shop.more["FASTSLOW_RUNS"] = str(shop.folder / "file")
    check(push(shop), FAILED, "a file")
    shop.more["FASTSLOW_RUNS"] = "/proc/runs"
    check(push(shop), FAILED, "/proc/runs", "not be")
    assert shop.world.calls == []


TRAINING, ENSEMBLE = "2-train-layout", "4-ensemble-and-submit"
BROKEN = "EXPERIMENTS=layout_*\udcff"  # a byte that is no text, as Python shows one


@pytest.mark.parametrize("pair", ["HOURS=nan", "HOURS=inf", "HOURS=1e400", BROKEN])
def test_what_no_record_can_hold_is_not_pushed(shop: Desk, pair: str) -> None:
    """The records can be read afterwards, and the next push is as any other."""
    check(shop.call("kernels", "push", TRAINING, "--allow-dirty", "--set", pair), FAILED, "such as")
    assert shop.world.calls == []
    assert "never pushed" in shop.call("kernels", "status").words


def test_numbers_and_texts_that_fit_are_recorded(shop: Desk) -> None:
    options = ("--set", "HOURS=8", "--set", "FOLDS=0, 1", "--set", "PACK=")
    check(shop.call("kernels", "push", TRAINING, "--allow-dirty", *options))
    latest = read_latest(shop, TRAINING)
    assert latest.values == {"HOURS": 8.0, "FOLDS": "0, 1", "PACK": ""}
    assert math.isfinite(float(latest.values["HOURS"]))


@pytest.mark.parametrize(("pair", "expected"), [
    ("HOURS=-1", "0 or more"), ("NUM_FOLDS=1", "2 or more"), ("SCHEME=program", "architecture or"),
    ("PACK=all", "refit or"), ("FOLDS=0,5", "numbers below NUM_FOLDS"),
    ("FOLDS=first", "numbers below NUM_FOLDS"), ("EXPERIMENTS=tiles_*", "layout_gnn_001"),
    ("COLLECTIONS=layout:tpu:*", "layout:xla:random"), ("PUSH=mine", "push sets"),
    ("COMMIT=mine", "push sets"),
])  # fmt: skip
def test_what_cannot_work_is_refused_by_name(pair: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as refusal:
        parse_values([pair], find_notebook(TRAINING).read())
    assert pair.partition("=")[0] in str(refusal.value)


def test_folds_are_of_the_number_that_is_given_with_them() -> None:
    found = find_notebook(TRAINING).read()
    assert parse_values(["FOLDS=7", "NUM_FOLDS=8"], found) == {"FOLDS": "7", "NUM_FOLDS": 8}


def test_only_what_can_be_set_is_offered() -> None:
    """A bundle is attached by an option of its own."""
    with pytest.raises(InputError, match="--bundle"):
        parse_values(["BUNDLE=mine"], find_notebook(ENSEMBLE).read())
    with pytest.raises(InputError, match=r"one of RECIPE, SOURCES\."):
        parse_values(["RECEIPT=mine"], find_notebook(ENSEMBLE).read())
    with pytest.raises(InputError, match="no parameter"):
        parse_values(["HOURS=1"], find_notebook("5").read())


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
    check(
        desk.call("kernels", *command, "--allow-dirty"),
        FAILED,
        f"{photos}: expected",
        "FASTSLOW_WHEELS",
    )
    assert mine.read_bytes() == b"mine"
