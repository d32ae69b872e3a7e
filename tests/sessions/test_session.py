"""Where a notebook is, what it finds among its inputs, and how it ends."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from solution.serving.archive import unpack
from solution.serving.bundle import DEFAULT
from solution.sessions.record import (
    SessionRecord,
    find_damaged,
    read_session_record,
    write_session_record,
)
from solution.sessions.session import Session, find_attached_data
from solution.system.errors import InputError
from solution.system.files import write_sealed
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph


def make_store(folder: Path, hops: int = 0) -> Path:
    folder.mkdir(parents=True)
    write_sealed({"format": 1, "preparation": {"hops": hops}}, folder / "store.json")
    return folder


@pytest.fixture
def kaggle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel with an empty input tree, which is returned."""
    for name in ("input", "working"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("FASTSLOW_INPUT", str(tmp_path / "input"))
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    monkeypatch.delenv("FASTSLOW_DATA", raising=False)
    monkeypatch.chdir(tmp_path / "working")
    return tmp_path / "input"


@pytest.mark.parametrize("where", ["", "competitions"])
@pytest.mark.parametrize("shape", ["", "npz_all"])
def test_the_data_is_found_wherever_it_is_mounted(where: str, shape: str, kaggle: Path) -> None:
    """Beside a wheel that was unpacked with its samples, and other people's files."""
    mount = kaggle / where / "predict-ai-model-runtime"
    for number in range(2):
        write_graph(make_layout_graph(number, name=f"graph{number}"), mount / shape)
    ours = kaggle / "datasets" / "me" / "wheels" / "fast_or_slow" / "solution" / "data"
    for number in range(3):
        write_graph(make_tile_graph(number, name=f"kernel{number}"), ours / "sample")
        write_graph(make_tile_graph(number, name=f"own{number}"), ours / "collected")
    (kaggle / "other").mkdir()
    (kaggle / "other" / "matrix.npz").write_bytes(b"something else")
    assert Session.begin("notebook").find_data() == mount


def test_a_store_is_preferred_and_nothing_is_an_error(kaggle: Path) -> None:
    kernel = Session.begin("notebook")
    with pytest.raises(InputError, match="prepared store"):
        kernel.find_data()
    write_graph(make_layout_graph(), kaggle / "competition")
    store = make_store(kaggle / "datasets" / "me" / "store")
    assert find_attached_data(kaggle) == kaggle / "competition"
    (store / "graphs.parquet").write_bytes(b"")
    assert find_attached_data(kaggle) == store
    # Who looks at the files themselves can do nothing with a store.
    assert kernel.find_data(prepared=False) == kaggle / "competition"
    shutil.rmtree(kaggle / "competition")
    with pytest.raises(InputError, match="are attached"):
        kernel.find_data(prepared=False)


def test_of_several_folders_with_data_none_is_left_out(kaggle: Path) -> None:
    """The one with all is taken, however often it is mounted; else the user says which."""
    first, second, whole = (kaggle / "datasets" / "me" / name for name in ("a", "b", "c"))
    for number in range(2):
        write_graph(make_layout_graph(number, name=f"graph{number}"), first)
    write_graph(make_tile_graph(), second)
    with pytest.raises(InputError, match="different.*FASTSLOW_DATA"):
        find_attached_data(kaggle)
    for part in (first, second):
        shutil.copytree(part, whole, dirs_exist_ok=True)
    assert find_attached_data(kaggle) == whole
    shutil.copytree(whole, kaggle / "again")
    assert find_attached_data(kaggle) == kaggle / "again"


def test_of_several_different_stores_none_is_left_out(kaggle: Path) -> None:
    for name in ("a", "b"):
        (make_store(kaggle / name) / "graphs.parquet").write_bytes(b"")
        assert find_attached_data(kaggle) == kaggle / "a"
    (make_store(kaggle / "c", hops=1) / "graphs.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="have different"):
        find_attached_data(kaggle)


def test_on_a_laptop_outputs_go_to_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    monkeypatch.setenv("FASTSLOW_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FASTSLOW_DATA", str(tmp_path))
    kernel = Session.begin("2-train", push="key")
    assert kernel.output == tmp_path / "runs" / "2-train"
    assert kernel.find_data() == tmp_path
    assert read_session_record(kernel.output).state == "running"
    kernel.finish("3 models are left")
    record = read_session_record(kernel.output)
    assert (record.state, record.push, record.note) == ("stopped", "key", "3 models are left")
    assert kernel.find_runs() == [] and kernel.find_bundle() is None
    assert kernel.find_bundle("mine.zip") == Path("mine.zip")


def test_runs_are_found_by_the_notebook_that_left_them(kaggle: Path) -> None:
    for mount, name in (("a", "2-train"), ("notebooks/me/b", "3-train"), ("c", "4-merge")):
        write_session_record(SessionRecord(notebook=name), kaggle / mount)
        write_sealed({"settings": {}}, kaggle / mount / "run" / "run.json")
    write_sealed({"settings": {}}, kaggle / "a-run-of-somebody" / "run.json")
    kernel = Session.begin("4-merge")
    found = [run.folder.parent for run in kernel.find_runs("2-*,3-*")]
    assert found == [kaggle / "a", kaggle / "notebooks" / "me" / "b"]
    assert len(kernel.find_runs()) == 3


def test_an_attached_bundle_is_found(kaggle: Path, tmp_path: Path) -> None:
    """Its zip, or the folder that Kaggle made of it; not what notebooks or wheels hold."""
    kernel, output = Session.begin("4-merge"), kaggle / "notebooks" / "me" / "2"
    write_session_record(SessionRecord(notebook="2-train"), output)
    shutil.copyfile(DEFAULT, output / "bundle.zip")
    ours = kaggle / "wheels" / "fast_or_slow" / "solution" / "serving"
    unpack(DEFAULT, make(ours / "default"))
    shutil.copyfile(DEFAULT, ours / "default.zip")
    (kaggle / "other.zip").write_bytes(b"something else")
    assert kernel.find_bundle() is None
    with pytest.raises(InputError, match="found none"):
        kernel.find_bundle("mine")
    unpack(DEFAULT, unpacked := make(kaggle / "datasets" / "me" / "mine" / "bundle"))
    assert kernel.find_bundle() == kernel.find_bundle("mine") == unpacked
    shutil.copyfile(DEFAULT, whole := make(kaggle / "theirs") / "bundle.zip")
    assert kernel.find_bundle("theirs") == whole
    with pytest.raises(InputError, match="expected one"):
        kernel.find_bundle()


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("ended_by", ["time", "SIGTERM", "itself"])
def test_a_session_ends_quietly(
    ended_by: str, kaggle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its limit and when it is asked to; afterwards signals are as they were."""
    kernel = Session.begin("notebook")
    before = signal.getsignal(signal.SIGTERM)
    reached = False
    with kernel.time_limit(-1 if ended_by == "time" else 1):
        try:
            if ended_by == "SIGTERM":
                os.kill(os.getpid(), signal.SIGTERM)
            if ended_by != "itself":
                time.sleep(10)
        except Exception:  # noqa: BLE001 - as code does that goes on after a failure
            pytest.fail("nothing on the way may take it for a failure")
        reached = True
    assert reached == (ended_by == "itself")
    assert ("the next session continues" in capsys.readouterr().out) == (ended_by != "itself")
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_it_ends_quietly_in_c_code(kaggle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a handler raises, some of it returns to Python by a SystemError; others are passed."""
    kernel = Session.begin("notebook")
    with kernel.time_limit(0.1 / 3600):
        try:
            time.sleep(10)
        except BaseException as reason:
            raise SystemError("returned a result with an exception set") from reason
    assert "time limit" in capsys.readouterr().out
    with pytest.raises(SystemError, match="another"), kernel.time_limit(1):
        raise SystemError("another") from OSError()


def test_a_record_knows_its_files(tmp_path: Path) -> None:
    for name in ("one", "run/two", ".hidden", "run/.partial-three"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    write_session_record(SessionRecord(notebook="n", state="finished"), tmp_path)
    record = read_session_record(tmp_path)
    assert sorted(record.files) == ["one", "run/two"]
    assert find_damaged(record, tmp_path) == []
    (tmp_path / "one").write_text("<html>")
    (tmp_path / "run" / "two").unlink()
    assert find_damaged(record, tmp_path) == ["one", "run/two"]
