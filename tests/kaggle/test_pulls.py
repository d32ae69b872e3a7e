"""What was made where a pull puts its outputs is not lost, and a pull that broke off goes on."""

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

import pytest

from solution.serving.archive import unpack, write_archive
from solution.serving.bundle import DEFAULT, load_bundle
from solution.serving.record import read_bundle_record, write_bundle_record
from solution.sessions.record import KERNEL_RECORD
from solution.system.files import read_sealed, write_sealed
from tests.kaggle.desk import USER, Desk, Done, check
from tests.kaggle.test_kernels import (
    DATASET,
    DONE,
    FAILED,
    LEDGER,
    NAME,
    finish_session,
    pull,
    push,
    read_latest,
)
from tests.kaggle.world import CREATE_DATASET, GET, OUTPUT, SAVE, Fault, Kernel
from tests.processes import FASTSLOW


@pytest.fixture
def pushed(shop: Desk) -> Kernel:
    """A push that has run."""
    assert push(shop).code == DONE
    return finish_session(shop)


@pytest.fixture
def pulled(shop: Desk, pushed: Kernel) -> Path:
    """The outputs of a push, brought back once."""
    assert pull(shop).code == DONE
    return shop.folder / "runs" / NAME


def test_a_record_deletes_nothing_outside_of_the_outputs(shop: Desk, pushed: Kernel) -> None:
    """What is damaged is deleted and fetched again, and the record comes from the network."""
    mine = shop.folder / "mine"
    mine.write_text("mine")
    path = shop.folder / "session" / KERNEL_RECORD
    record = read_sealed(path, "a record")
    for name in (str(mine), "../../../mine"):
        write_sealed({**record, "files": {**record["files"], name: "0" * 64}}, path)
        pushed.outputs[KERNEL_RECORD] = path.read_bytes()
        assert pull(shop).code == FAILED
        assert mine.read_text() == "mine"


def test_an_output_whose_name_leads_elsewhere_is_not_fetched(shop: Desk, pushed: Kernel) -> None:
    """The CLI writes it wherever its name leads."""
    names = ["../escaped", "run/../../../escaped", f"{shop.folder}/escaped"]
    listed = shop.world.on_ListKernelSessionOutput
    led = {f"escaped{number}": name for number, name in enumerate(names)}
    pushed.outputs |= dict.fromkeys(led, b"harm")
    shop.world.on_ListKernelSessionOutput = lambda body: {  # type: ignore[method-assign]
        **(reply := listed(body)),
        "files": [
            {**file, "fileName": led.get(file["fileName"], file["fileName"])}
            for file in reply["files"]
        ],
    }
    check(pull(shop))
    assert not list(shop.folder.rglob("escaped*"))


def test_a_push_whose_key_leads_elsewhere_is_refused(shop: Desk, pushed: Kernel) -> None:
    path = shop.folder / "runs" / "kernels" / f"{NAME}.json"
    record = read_sealed(path, "a record")
    for key in ("../evil", "/tmp/evil", ""):
        record["pushes"][0]["key"] = key
        write_sealed(record, path)
        check(pull(shop), FAILED, f"{NAME}.json", "found something else")


def test_a_file_of_the_users_is_not_lost_to_the_next_push(shop: Desk, pulled: Path) -> None:
    assert push(shop).code == DONE
    finish_session(shop)
    for name in ("notes.txt", ".notes", "run/notes.txt"):
        (pulled / name).write_text("mine")
        check(pull(shop), FAILED, f"would be overwritten: {name}", "--replace")
        assert (pulled / name).read_text() == "mine"
        (pulled / name).unlink()
    (pulled / name).write_text("mine")
    assert pull(shop, "--replace").code == DONE
    assert not (pulled / name).exists()


def test_outputs_of_jupyter_do_not_count_as_the_users(shop: Desk) -> None:
    """What a session does not list is left there, or the next pull would be refused."""
    for _ in range(2):
        assert push(shop).code == DONE
        kernel = finish_session(shop)
        kernel.outputs |= {".virtual_documents/a.py": b"1", "__notebook__.ipynb": b"{}"}
        check(pull(shop))


def test_outputs_that_change_after_a_pull_was_interrupted(shop: Desk, pushed: Kernel) -> None:
    """The push ran again on Kaggle; its record has as many bytes, so the CLI keeps the old one."""
    shop.world.faults = [Fault(GET, "500", first=shop.world.count(GET) + 3)]
    assert pull(shop).code == FAILED
    shop.world.faults = []
    assert list((shop.folder / "runs" / "kernels").glob(f"{NAME}-*/{KERNEL_RECORD}"))
    finish_session(shop, ledger=b"key,then\n")
    check(pull(shop))
    assert (shop.folder / "runs" / NAME / "ledger.csv").read_bytes() == b"key,then\n"


def test_what_a_killed_pull_left_is_removed_by_the_next(shop: Desk) -> None:
    assert push(shop).code == DONE
    finish_session(shop, ledger=bytes(64 << 20))  # large, so that the kill comes during the copy
    running, runs = shop.start("kernels", "pull", NAME), shop.folder / "runs"
    while not (left := list(runs.glob(".partial-*"))) and not running.ends_within(0.001):
        pass
    os.killpg(running.number, signal.SIGKILL)
    assert (running.finish().code, len(left)) == (-signal.SIGKILL, 1)
    assert left[0].is_dir()
    check(pull(shop))
    assert not list(runs.rglob(".partial-*"))


def test_two_pulls_at_once(shop: Desk, pushed: Kernel) -> None:
    """One waits for the other, and finds all there."""
    running = [shop.start("kernels", "pull", NAME) for _ in range(2)]
    for done in [each.finish() for each in running]:
        assert done.code == DONE, done.words
    assert shop.world.count(OUTPUT) == 2  # a look, and the outputs
    latest = read_latest(shop)
    assert latest.state == "pulled"


def test_a_damaged_record_is_replaced_where_it_is_asked_for(shop: Desk, pulled: Path) -> None:
    (pulled / KERNEL_RECORD).write_text("{")
    check(pull(shop), FAILED, "would be overwritten", "--replace")
    check(pull(shop, "--replace"))
    assert pull(shop).code == DONE


def test_a_file_in_the_way_is_told_before_the_download(shop: Desk, pushed: Kernel) -> None:
    path, asked = shop.folder / "runs" / NAME, len(shop.world.calls)
    path.write_text("mine")
    for options in ((), ("--replace",)):
        check(pull(shop, *options), FAILED, f"runs/{NAME}: expected a folder", "Move it away")
    assert (len(shop.world.calls), path.read_text()) == (asked, "mine")


def test_a_link_leads_to_where_outputs_are_put(shop: Desk, pushed: Kernel, tmp_path: Path) -> None:
    """It stays a link; what it leads to is replaced."""
    elsewhere, link = tmp_path / "large disk" / "outputs", shop.folder / "runs" / NAME
    elsewhere.mkdir(parents=True)
    (elsewhere / "old.txt").write_text("old")
    link.symlink_to(elsewhere)
    check(pull(shop), FAILED, "would be overwritten: old.txt")
    check(pull(shop, "--replace"))
    assert link.is_symlink()
    assert (elsewhere / "ledger.csv").read_bytes() == LEDGER
    assert not (elsewhere / "old.txt").exists()


def test_a_damaged_record_of_one_does_not_hide_the_others(shop: Desk, pushed: Kernel) -> None:
    damaged = shop.folder / "runs" / "kernels" / "2-train-layout.json"
    damaged.write_text("{")
    said = "2-train-layout: runs/kernels/2-train-layout.json: expected a record"
    check(shop.call("kernels", "status"), DONE, "finished", said)


SHARED = f"{USER}/fast-or-slow-bundle-mine"
NOTEBOOK = f"{USER}/fast-or-slow-4-ensemble-and-submit"


def share(shop: Desk, bundle: Path = DEFAULT, name: str = "mine") -> Done:
    return shop.call("kernels", "share", str(bundle), "--name", name)


def push_sharing(shop: Desk, notebook: str, bundle: str) -> Done:
    return shop.call("kernels", "push", notebook, "--allow-dirty", "--bundle", bundle)


def unpack_default(folder: Path) -> Path:
    folder.mkdir()
    unpack(DEFAULT, folder)
    return folder


def test_a_bundle_is_uploaded_once_and_ranks_where_it_arrives(shop: Desk, tmp_path: Path) -> None:
    """As a private dataset; its folder is the same bundle; another one is a new version."""
    said = f"Shared: version 1, private, of https://www.kaggle.com/datasets/{SHARED}"
    check(share(shop), DONE, said)
    (body,) = [body for call, body in shop.world.calls if call == CREATE_DATASET]
    assert body["isPrivate"] is True
    folder = unpack_default(tmp_path / "folder")
    for same in (DEFAULT, folder):
        check(share(shop, same), DONE, "version 1")
    (version,) = shop.world.datasets[SHARED]
    assert {*version} == {"bundle.zip"}
    arrived = tmp_path / "arrived.zip"
    arrived.write_bytes(version["bundle.zip"])
    assert load_bundle(arrived).record == load_bundle(DEFAULT).record

    record = read_bundle_record(folder, folder)
    write_bundle_record(dataclasses.replace(record, name="another"), folder)
    check(share(shop, write_archive(folder, tmp_path / "mine.zip")), DONE, "Shared: version 2")
    assert len(shop.world.datasets[SHARED]) == 2


def test_an_upload_is_repeated_if_its_answer_is_lost(shop: Desk) -> None:
    """The first one arrived, so the second one is another version of the same dataset."""
    shop.world.faults = [Fault(CREATE_DATASET, "lost", times=1, counted=True)]
    check(share(shop), DONE)
    assert len(shop.world.datasets[SHARED]) == 2


def test_a_notebook_is_given_a_bundle(shop: Desk) -> None:
    """And the data that it is to predict; it asks for no other notebook's output then."""
    assert share(shop).code == DONE
    check(push_sharing(shop, "4", "mine"))
    kernel = shop.world.kernels[NOTEBOOK]
    assert kernel.saved[0]["datasetDataSources"] == [DATASET, SHARED]
    assert kernel.saved[0]["competitionDataSources"] == ["predict-ai-model-runtime"]
    assert not kernel.saved[0].get("kernelDataSources")
    cells = ["".join(cell["source"]) for cell in kernel.notebook["cells"]]
    (injected,) = (text for text in cells if text.startswith("# Set for this execution."))
    assert "BUNDLE = 'fast-or-slow-bundle-mine'" in injected
    done = push_sharing(shop, "4", f"{USER}/fast-or-slow-bundle-mine")  # by its whole name
    assert done.code == DONE, done.words
    assert kernel.saved[1]["datasetDataSources"] == [DATASET, SHARED]


def test_what_cannot_be_given_is_refused(shop: Desk) -> None:
    check(push_sharing(shop, "4", "other"), FAILED, "no such")
    check(push_sharing(shop, "5", "mine"), FAILED, "no bundle")
    assert shop.world.count(SAVE) == 0


def test_only_a_sound_bundle_is_shared(shop: Desk, tmp_path: Path) -> None:
    """Nothing is asked of Kaggle before it was looked at."""
    cut = tmp_path / "cut.zip"
    cut.write_bytes(DEFAULT.read_bytes()[:-100])
    check(share(shop, cut), FAILED, "cut.zip")
    for name in ("My models", "mine-", "m" * 40):
        check(share(shop, DEFAULT, name), FAILED, "small letters")
    assert shop.world.calls == []


@pytest.mark.parametrize("is_unpacked", [True, False])
def test_a_disk_without_room_is_not_the_fault_of_the_bundle(
    shop: Desk, tmp_path: Path, *, is_unpacked: bool
) -> None:
    """Neither where it is unpacked nor where its zip is written; no file may be so large here."""
    bundle = unpack_default(tmp_path / "folder") if is_unpacked else DEFAULT
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", FASTSLOW.program]
    words = [*limited, "kernels", "share", bundle, "--name", "mine"]
    done = subprocess.run(
        words, cwd=shop.folder, env=shop.environment(), capture_output=True, text=True
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == FAILED, said
    assert f"Error: {shop.folder / 'tmp'}/fastslow-" in said
    assert "large" in said
    assert shop.world.calls == []
