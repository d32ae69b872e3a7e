"""Pushes that are stopped while they wait, and what is refused before anything is asked."""

import os
import signal
import time

import pytest

from tests.kaggle.kernel_world import OUTPUT, SAVE, SOURCE
from tests.kaggle.place import Place
from tests.kaggle.test_kernels import (
    DATASET,
    DONE,
    FAILED,
    KERNEL,
    NAME,
    finish_session,
    pull,
    push,
    shop,
)
from tests.kaggle.test_processes import find_group
from tests.kaggle.world import Fault

__all__ = ["shop"]  # a fixture


def test_a_dataset_that_is_processed_for_long_is_uploaded_once(shop: Place) -> None:
    """The same command goes on with the wait."""
    shop.more["FASTSLOW_READY_SECONDS"] = "0.01"
    shop.world.processing = 9
    for _ in range(2):
        done = push(shop)
        assert (done.code, "it goes" in done.words) == (FAILED, True), done.words
    shop.world.processing = 1
    shop.more["FASTSLOW_READY_SECONDS"] = "60"
    done = push(shop)
    assert done.code == DONE, done.words
    assert len(shop.world.datasets[DATASET]) == 1


@pytest.mark.parametrize("late", [[], [Fault(SOURCE, "403", times=1)]], ids=["at once", "late"])
@pytest.mark.parametrize(
    "answer", ["API rate limit exceeded", "Connection refused", "Kernel not found"]
)
def test_what_kaggle_took_runs_once_whatever_it_answered(
    shop: Place, answer: str, late: list[Fault]
) -> None:
    """Its source may be shown only a little later."""
    shop.world.faults = [Fault(SAVE, "503", times=1, counted=True, message=answer), *late]
    done = push(shop)
    assert done.code == DONE, done.words
    assert len(shop.world.kernels[KERNEL].saved) == 1


def test_the_source_of_a_kernel_is_written_where_the_name_from_kaggle_cannot_lead(
    shop: Place,
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
    shop: Place, call: str, number: signal.Signals
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
    done = again(shop)
    assert done.code == DONE, done.words


@pytest.mark.parametrize("name", ["/b", "-h/x", "a/b/c", "a/", "a /b", "My models"])
def test_what_cannot_be_the_name_of_a_bundle_is_refused(shop: Place, name: str) -> None:
    done = shop.call("kernels", "push", "4", "--allow-dirty", f"--bundle={name}")
    assert (done.code, f"{name!r}: expected" in done.words) == (FAILED, True), done.words
    assert shop.world.calls == []


@pytest.mark.parametrize("program", ["/nonexistent/kaggle", "/etc"])
def test_a_program_that_cannot_be_run_is_told_by_its_variable(shop: Place, program: str) -> None:
    shop.more["FASTSLOW_KAGGLE"] = program
    done = push(shop)
    assert (done.code, f"FASTSLOW_KAGGLE={program}" in done.words) == (FAILED, True), done.words


def test_records_that_cannot_be_written_are_told_by_their_folder(shop: Place) -> None:
    """No folder, and one that is nobody's to write."""
    (shop.folder / "file").write_text("mine")
    shop.more["FASTSLOW_RUNS"] = str(shop.folder / "file")
    done = push(shop)
    assert (done.code, "its place" in done.words) == (FAILED, True), done.words
    shop.more["FASTSLOW_RUNS"] = "/proc/runs"
    done = push(shop)
    assert (done.code, "/proc/runs" in done.words) == (FAILED, True), done.words
    assert "not be" in done.words
    assert shop.world.calls == []
