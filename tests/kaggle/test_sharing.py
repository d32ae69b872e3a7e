"""Bundles as datasets: uploaded whole, once, and given to the notebook that predicts with them."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from solution.serving.archive import unpack, write_archive
from solution.serving.bundle import DEFAULT, load_bundle
from solution.serving.record import read_bundle_record, write_bundle_record
from tests.kaggle.kernel_world import CREATE_DATASET, DATASET_STATUS, SAVE
from tests.kaggle.place import USER, Done, Place
from tests.kaggle.test_kernels import DATASET, DONE, FAILED, UNKNOWN, shop
from tests.kaggle.world import Fault
from tests.processes import FASTSLOW

__all__ = ["shop"]  # a fixture

SHARED = f"{USER}/fast-or-slow-bundle-mine"
NOTEBOOK = f"{USER}/fast-or-slow-4-ensemble-and-submit"


def share(shop: Place, bundle: Path = DEFAULT, name: str = "mine") -> Done:
    return shop.call("kernels", "share", str(bundle), "--name", name)


def push(shop: Place, notebook: str, bundle: str) -> Done:
    return shop.call("kernels", "push", notebook, "--allow-dirty", "--bundle", bundle)


def unpack_default(folder: Path) -> Path:
    folder.mkdir()
    unpack(DEFAULT, folder)
    return folder


def test_a_bundle_is_uploaded_once_and_ranks_where_it_arrives(shop: Place, tmp_path: Path) -> None:
    """As a private dataset; its folder is the same bundle; another one is a new version."""
    done = share(shop)
    assert done.code == DONE, done.words
    assert f"Shared: version 1, private, of https://www.kaggle.com/datasets/{SHARED}" in done.words
    (body,) = [body for call, body in shop.world.calls if call == CREATE_DATASET]
    assert body["isPrivate"] is True
    folder = unpack_default(tmp_path / "folder")
    for same in (DEFAULT, folder):
        done = share(shop, same)
        assert (done.code, "version 1" in done.words) == (DONE, True), done.words
    (version,) = shop.world.datasets[SHARED]
    assert {*version} == {"bundle.zip"}
    arrived = tmp_path / "arrived.zip"
    arrived.write_bytes(version["bundle.zip"])
    assert load_bundle(arrived).record == load_bundle(DEFAULT).record

    record = read_bundle_record(folder, folder)
    write_bundle_record(dataclasses.replace(record, name="another"), folder)
    done = share(shop, write_archive(folder, tmp_path / "mine.zip"))
    assert (done.code, "Shared: version 2" in done.words) == (DONE, True), done.words
    assert len(shop.world.datasets[SHARED]) == 2


def test_a_notebook_is_given_a_bundle(shop: Place) -> None:
    """And the data that it is to predict; it asks for no other notebook's output then."""
    assert share(shop).code == DONE
    done = push(shop, "4", "mine")
    assert done.code == DONE, done.words
    kernel = shop.world.kernels[NOTEBOOK]
    assert kernel.saved[0]["datasetDataSources"] == [DATASET, SHARED]
    assert kernel.saved[0]["competitionDataSources"] == ["predict-ai-model-runtime"]
    assert not kernel.saved[0].get("kernelDataSources")
    cells = ["".join(cell["source"]) for cell in kernel.notebook["cells"]]
    (injected,) = (text for text in cells if text.startswith("# Set for this execution."))
    assert "BUNDLE = 'fast-or-slow-bundle-mine'" in injected
    done = push(shop, "4", f"{USER}/fast-or-slow-bundle-mine")  # by its whole name
    assert done.code == DONE, done.words
    assert kernel.saved[1]["datasetDataSources"] == [DATASET, SHARED]


def test_what_cannot_be_given_is_refused(shop: Place) -> None:
    done = push(shop, "4", "other")
    assert (done.code, "no such" in done.words) == (FAILED, True), done.words
    done = push(shop, "5", "mine")
    assert (done.code, "no bundle" in done.words) == (FAILED, True), done.words
    assert shop.world.count(SAVE) == 0


def test_only_a_sound_bundle_is_shared(shop: Place, tmp_path: Path) -> None:
    """Nothing is asked of Kaggle before it was looked at."""
    cut = tmp_path / "cut.zip"
    cut.write_bytes(DEFAULT.read_bytes()[:-100])
    done = share(shop, cut)
    assert (done.code, "cut.zip" in done.words) == (FAILED, True), done.words
    for name in ("My models", "mine-", "m" * 40):
        done = share(shop, DEFAULT, name)
        assert (done.code, "small letters" in done.words) == (FAILED, True)
    assert shop.world.calls == []


@pytest.mark.parametrize("is_unpacked", [True, False])
def test_a_disk_without_room_is_not_the_fault_of_the_bundle(
    shop: Place, tmp_path: Path, *, is_unpacked: bool
) -> None:
    """Neither where it is unpacked nor where its zip is written; no file may be so large here."""
    bundle = unpack_default(tmp_path / "folder") if is_unpacked else DEFAULT
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", FASTSLOW.program]
    done = subprocess.run(
        [*limited, "kernels", "share", bundle, "--name", "mine"],
        cwd=shop.folder,
        env=shop.environment(),
        capture_output=True,
        text=True,
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == FAILED, said
    assert f"Error: {shop.folder / 'tmp'}/fastslow-" in said
    assert "large" in said
    assert shop.world.calls == []


@pytest.mark.parametrize("looks", [True, False])
def test_the_answer_to_an_upload_is_lost(shop: Place, *, looks: bool) -> None:
    """A look says that it arrived; where that fails too, nobody knows, and it is said."""
    shop.world.faults = [Fault(CREATE_DATASET, "html", counted=True, times=1)]
    if not looks:  # after our look before it, and the CLI's own
        shop.world.faults.append(Fault(DATASET_STATUS, "500", first=3))
    done = share(shop)
    assert done.code == (DONE if looks else UNKNOWN), done.words
    assert "wheels" not in done.words
    assert ("look failed" in done.words) is not looks
    shop.world.faults = []
    done = share(shop)
    assert done.code == DONE, done.words
    assert len(shop.world.datasets[SHARED]) == (1 if looks else 2)


def test_a_dataset_that_kaggle_cannot_process_is_uploaded_anew(shop: Place) -> None:
    shop.world.dataset_state = "FAILED"
    done = share(shop)
    assert (done.code, "status failed" in done.words) == (FAILED, True), done.words
    shop.world.dataset_state = "READY"
    done = share(shop)
    assert done.code == DONE, done.words
