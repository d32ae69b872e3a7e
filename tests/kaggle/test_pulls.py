"""What was made where a pull puts its outputs is not lost, and a pull that broke off goes on."""

import os
import signal
from pathlib import Path

import pytest

from solution.sessions.record import KERNEL_RECORD
from solution.system.files import read_sealed, write_sealed
from tests.kaggle.kernel_world import OUTPUT
from tests.kaggle.place import Done, Place
from tests.kaggle.test_kernels import (
    DONE,
    FAILED,
    LEDGER,
    NAME,
    finish_session,
    pull,
    push,
    read_pushes,
    shop,
)
from tests.kaggle.world import GET, Fault

__all__ = ["shop"]  # a fixture


@pytest.fixture
def pulled(shop: Place) -> Path:
    """The outputs of a push, brought back once."""
    assert push(shop).code == DONE
    finish_session(shop)
    assert pull(shop).code == DONE
    return shop.folder / "runs" / NAME


def assert_refused(done: Done, *words: str) -> None:
    assert done.code == FAILED, done.words
    for word in words:
        assert word in done.words


def test_what_is_here_is_not_fetched_again(shop: Place, pulled: Path) -> None:
    """And a file beside it stays."""
    (pulled / "notes.txt").write_text("mine")
    asked = len(shop.world.calls)
    done = pull(shop)
    assert (done.code, "the outputs" in done.words) == (DONE, True), done.words
    assert len(shop.world.calls) == asked
    assert (pulled / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("way", ["../../..", "absolute"])
def test_a_record_deletes_nothing_outside_of_the_outputs(shop: Place, way: str) -> None:
    """What is damaged is deleted and fetched again, and the record comes from the network."""
    mine = shop.folder / "mine"
    mine.write_text("mine")
    name = str(mine) if way == "absolute" else f"{way}/mine"
    assert push(shop).code == DONE
    kernel, path = finish_session(shop), shop.folder / "session" / KERNEL_RECORD
    record = read_sealed(path, "a record")
    write_sealed({**record, "files": {**record["files"], name: "0" * 64}}, path)
    kernel.outputs[KERNEL_RECORD] = path.read_bytes()
    assert pull(shop).code == FAILED
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["../escaped", "run/../../../escaped", "/{folder}/escaped"])
def test_an_output_whose_name_leads_elsewhere_is_not_fetched(shop: Place, name: str) -> None:
    """The CLI writes it wherever its name leads."""
    assert push(shop).code == DONE
    kernel = finish_session(shop)
    listed = shop.world.on_ListKernelSessionOutput
    kernel.outputs["escaped"] = b"harm"
    shop.world.on_ListKernelSessionOutput = lambda body: {  # type: ignore[method-assign]
        **(reply := listed(body)),
        "files": [
            {**file, "fileName": name.format(folder=shop.folder)}
            if file["fileName"] == "escaped"
            else file
            for file in reply["files"]
        ],
    }
    done = pull(shop)
    assert done.code == DONE, done.words
    assert not list(shop.folder.rglob("escaped"))


@pytest.mark.parametrize("key", ["../evil", "/tmp/evil", ""])
def test_a_push_whose_key_leads_elsewhere_is_refused(shop: Place, key: str) -> None:
    assert push(shop).code == DONE
    finish_session(shop)
    path = shop.folder / "runs" / "kernels" / f"{NAME}.json"
    record = read_sealed(path, "a record")
    record["pushes"][0]["key"] = key
    write_sealed(record, path)
    assert_refused(pull(shop), f"{NAME}.json", "found something else")


@pytest.mark.parametrize("name", ["notes.txt", ".notes", "run/notes.txt"])
def test_a_file_of_the_users_is_not_lost_to_the_next_push(
    shop: Place, pulled: Path, name: str
) -> None:
    (pulled / name).write_text("mine")
    assert push(shop).code == DONE
    finish_session(shop)
    assert_refused(pull(shop), f"would be overwritten: {name}", "--replace")
    assert (pulled / name).read_text() == "mine"
    assert pull(shop, "--replace").code == DONE
    assert not (pulled / name).exists()


def test_a_changed_output_is_not_lost(shop: Place, pulled: Path) -> None:
    """One that is missing is brought again."""
    ledger = pulled / "ledger.csv"
    ledger.write_text("mine")
    assert_refused(pull(shop), "would be overwritten: ledger.csv")
    assert ledger.read_text() == "mine"
    ledger.unlink()
    assert pull(shop).code == DONE
    assert ledger.read_bytes() == LEDGER


def test_outputs_of_jupyter_do_not_count_as_the_users(shop: Place) -> None:
    """What a session does not list is left there, or the next pull would be refused."""
    for _ in range(2):
        assert push(shop).code == DONE
        kernel = finish_session(shop)
        kernel.outputs |= {".virtual_documents/a.py": b"1", "__notebook__.ipynb": b"{}"}
        done = pull(shop)
        assert done.code == DONE, done.words


def test_outputs_that_change_after_a_pull_was_interrupted(shop: Place) -> None:
    """The push ran again on Kaggle; its record has as many bytes, so the CLI keeps the old one."""
    assert push(shop).code == DONE
    finish_session(shop)
    shop.world.faults = [Fault(GET, "500", first=shop.world.count(GET) + 3)]
    assert pull(shop).code == FAILED
    shop.world.faults = []
    assert list((shop.folder / "runs" / "kernels").glob(f"{NAME}-*/{KERNEL_RECORD}"))
    finish_session(shop, ledger=b"key,then\n")
    done = pull(shop)
    assert done.code == DONE, done.words
    assert (shop.folder / "runs" / NAME / "ledger.csv").read_bytes() == b"key,then\n"


def test_what_a_killed_pull_left_is_removed_by_the_next(shop: Place) -> None:
    assert push(shop).code == DONE
    finish_session(shop, ledger=bytes(64 << 20))  # large, to be met while it is put in its place
    running, runs = shop.start("kernels", "pull", NAME), shop.folder / "runs"
    while not (left := list(runs.glob(".partial-*"))) and not running.ends_within(0.001):
        pass
    os.killpg(running.number, signal.SIGKILL)
    assert (running.finish().code, len(left)) == (-signal.SIGKILL, 1)
    assert left[0].is_dir()
    done = pull(shop)
    assert done.code == DONE, done.words
    assert not list(runs.rglob(".partial-*"))


def test_two_pulls_at_once(shop: Place) -> None:
    """One waits for the other, and finds all there."""
    assert push(shop).code == DONE
    finish_session(shop)
    running = [shop.start("kernels", "pull", NAME) for _ in range(2)]
    for done in [each.finish() for each in running]:
        assert done.code == DONE, done.words
    assert shop.world.count(OUTPUT) == 2  # a look, and the outputs
    latest = read_pushes(shop).latest
    assert latest is not None
    assert latest.state == "pulled"


def test_a_damaged_record_is_replaced_where_it_is_asked_for(shop: Place, pulled: Path) -> None:
    (pulled / KERNEL_RECORD).write_text("{")
    assert_refused(pull(shop), "would be overwritten", "--replace")
    done = pull(shop, "--replace")
    assert done.code == DONE, done.words
    assert pull(shop).code == DONE


def test_a_file_in_the_way_is_told_before_the_download(shop: Place) -> None:
    assert push(shop).code == DONE
    finish_session(shop)
    place, asked = shop.folder / "runs" / NAME, len(shop.world.calls)
    place.write_text("mine")
    for options in ((), ("--replace",)):
        assert_refused(pull(shop, *options), f"runs/{NAME}: expected a folder", "Move it away")
    assert (len(shop.world.calls), place.read_text()) == (asked, "mine")


def test_a_link_leads_to_where_the_outputs_are_put(shop: Place, tmp_path: Path) -> None:
    """It stays a link; what it leads to is replaced."""
    assert push(shop).code == DONE
    finish_session(shop)
    elsewhere, place = tmp_path / "large disk" / "outputs", shop.folder / "runs" / NAME
    elsewhere.mkdir(parents=True)
    (elsewhere / "old.txt").write_text("old")
    place.symlink_to(elsewhere)
    assert_refused(pull(shop), "would be overwritten: old.txt")
    done = pull(shop, "--replace")
    assert done.code == DONE, done.words
    assert place.is_symlink()
    assert (elsewhere / "ledger.csv").read_bytes() == LEDGER
    assert not (elsewhere / "old.txt").exists()


def test_a_damaged_record_of_one_notebook_does_not_hide_the_others(shop: Place) -> None:
    assert push(shop).code == DONE
    finish_session(shop)
    damaged = shop.folder / "runs" / "kernels" / "2-train-layout.json"
    damaged.write_text("{")
    done = shop.call("kernels", "status")
    assert done.code == DONE, done.words
    assert "finished" in done.words
    assert "2-train-layout: runs/kernels/2-train-layout.json: expected a record" in done.words
