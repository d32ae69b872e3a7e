"""`fastslow prepare`, and `check` and `run` on what it makes."""

import shutil
from pathlib import Path

import pytest

from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from tests.commands.test_check_command import DEFECTS, assert_names, write_broken
from tests.conftest import FastSlow, assert_done, assert_refused
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.store.test_store import prepare, snapshot, write_data

WIDE_EXPERIMENT = '''
"""Looks two hops around."""
from dataclasses import dataclass

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.nothing import NothingSettings


@dataclass(frozen=True)
class WideSettings(NothingSettings):
    needed_hops = 2


EXPERIMENT = Experiment(name="wide", collections=NAMES, ranker=WideSettings())
'''
NOTHING = ("--experiment", "nothing_001", "--workers", "1")


def times_of(store: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in store.rglob("*.safetensors")}


def test_prepare_says_what_it_made_and_check_finds_it_sound(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    said = assert_done(fastslow("prepare", "data"))
    assert "stores/data: 7 graphs, " in said
    assert Store.open(tmp_path / "stores" / "data").preparation["hops"] == 1
    assert "All 7" in assert_done(fastslow("check", "stores/data"))
    before = snapshot(tmp_path / "stores" / "data")
    times = times_of(tmp_path)
    assert_done(fastslow("prepare", "data", "--replace"))
    assert times_of(tmp_path).items().isdisjoint(times.items())
    assert snapshot(tmp_path / "stores" / "data") == before


def test_every_command_that_reads_a_folder_names_what_it_leaves_out(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    path = tmp_path / "data/npz/tile/xla/Test/kernel.NPZ"
    path.parent.mkdir()
    path.touch()
    (tmp_path / "data" / "sample_submission.csv").write_text("Id,Top\n", encoding="utf-8")
    for command in (("check",), ("prepare",), ("run", *NOTHING)):
        result = fastslow(command[0], "data", *command[1:])
        assert_done(result)
        assert "1 npz" in result.stderr
        assert "data/npz/tile/xla/Test/kernel.NPZ." in result.stderr
        assert "data/sample_submission.csv." in result.stderr


def test_every_defect_is_named_and_after_repair_it_goes_on(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    paths = write_broken(tmp_path / "data", *DEFECTS)
    store = tmp_path / "store"
    result = fastslow("prepare", tmp_path / "data", "--out", store)
    assert_refused(result)
    for defect, path in paths.items():
        assert_names(result, defect, path)
    assert "sound.npz" not in result.stderr
    assert not (store / "graphs.parquet").exists()
    [(sound, written)] = times_of(store).items()
    assert sound.stem == "sound"
    assert not any(tmp_path.rglob("unpickled"))
    for path in paths.values():
        write_graph(make_layout_graph(name=path.stem), tmp_path / "data")
    assert_done(fastslow("prepare", "data", "--out", store))
    assert sound.stat().st_mtime_ns == written
    assert snapshot(store) == snapshot(prepare(tmp_path, replace=True).folder)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("content", ["notes.txt", "store.json", None])
def test_a_folder_with_something_else_is_refused_and_stays(
    content: str | None, replace: bool, tmp_path: Path
) -> None:
    """A file that is called like the record of a store is none; `None` is a file in the way."""
    files = find_files(write_data(tmp_path))
    path = tmp_path / "out" if content is None else tmp_path / "out" / content
    path.parent.mkdir(exist_ok=True)
    path.write_text("[1]")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="out.*: expected"):
        prepare_store(files, tmp_path / "out", Preparation(), replace=replace)
    assert snapshot(tmp_path) == before


def test_check_finds_every_damaged_file_of_a_store(fastslow: FastSlow, tmp_path: Path) -> None:
    write_data(tmp_path)
    store = prepare(tmp_path)
    before = snapshot(store.folder)
    flipped, truncated, missing, swapped, other, *_ = store.paths()
    content = bytearray(flipped.read_bytes())
    content[-20] ^= 1
    flipped.write_bytes(content)
    truncated.write_bytes(truncated.read_bytes()[:-1])
    missing.unlink()
    shutil.copyfile(other, swapped)
    result = fastslow("check", "store")
    assert_refused(result)
    lines = result.stderr.splitlines()
    damaged = {flipped: "is not what was", truncated: "bytes, expected", missing: "no such file",
               swapped: "is not the file that was written"}  # fmt: skip
    for path, words in damaged.items():
        found = [line for line in lines if str(path.relative_to(tmp_path)) in line]
        assert len(found) == 1
        assert words in found[0]
    assert "4 defects" in result.stderr
    assert snapshot(prepare(tmp_path).folder) == before  # as the messages say


def results_of(run: Path) -> dict[str, bytes]:
    """Predictions, labels, rankings and the submission."""
    files = snapshot(run).items()
    return {n: content for n, content in files if n.endswith(("parquet", "submission.csv"))}


def test_run_on_a_store_gives_the_same_bytes_as_on_the_data(
    fastslow: FastSlow, cold_fastslow: FastSlow, tmp_path: Path
) -> None:
    """The second one in a new interpreter, which has another hash seed."""
    for seed in range(6):
        write_graph(make_layout_graph(seed, 30, name=f"program_{seed}"), tmp_path / "data")
        write_graph(make_tile_graph(seed, 30, name=f"kernel_{seed}"), tmp_path / "data", "valid")
    write_graph(make_layout_graph(7, name="asked", labelled=False), tmp_path / "data", "test")
    write_graph(make_tile_graph(7, name="asked", labelled=False), tmp_path / "data", "test")
    rows = "ID,TopConfigs\ntile:xla:asked,0;1;2;3;4\nlayout:xla:random:asked,0\n"
    (tmp_path / "data" / "sample_submission.csv").write_text(rows)
    quick = [*NOTHING, "--experiment", "layout_lightgbm_001", "--experiment", "tile_lightgbm_001"]
    options = [*quick, "--folds", "2", "--scheme", "graph", "--workers", "1"]
    assert_done(fastslow("run", "data", *options, "--run", "on-data"))
    prepare(tmp_path)
    shutil.rmtree(tmp_path / "data")
    assert_done(cold_fastslow("run", "store", *options, "--run", "on-store"))
    expected = results_of(tmp_path / "on-data")
    assert len(expected) > 10
    assert results_of(tmp_path / "on-store") == expected
    assert snapshot(tmp_path / "stores" / "data") == snapshot(tmp_path / "store")


def test_run_makes_what_its_experiments_need_and_refuses_a_store_without(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    (tmp_path / "wide.py").write_text(WIDE_EXPERIMENT)
    prepare(tmp_path)
    wide = [*NOTHING, "--experiment", "wide.py"]
    result = fastslow("run", "store", *wide)
    assert_refused(result)
    assert "1 hop" in result.stderr
    assert "--hops 2" in result.stderr
    assert not (tmp_path / "runs").exists()
    assert_done(fastslow("run", "data", *NOTHING, "--run", "runs/near"))
    near = snapshot(tmp_path / "stores" / "data")
    assert_done(fastslow("run", "data", *wide))
    assert Store.open(tmp_path / "stores" / "data-hops-2").preparation["hops"] == 2
    assert snapshot(tmp_path / "stores" / "data") == near  # another run may be reading it
    assert_done(fastslow("run", "data", *NOTHING, "--run", "runs/near"))


def test_run_keeps_a_store_that_serves_and_never_touches_one_that_was_named(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    (tmp_path / "wide.py").write_text(WIDE_EXPERIMENT)
    assert_done(fastslow("prepare", "data", "--whole"))
    whole = snapshot(tmp_path / "stores" / "data")
    assert_done(fastslow("run", "data", *NOTHING))
    assert snapshot(tmp_path / "stores" / "data") == whole
    near = snapshot(prepare(tmp_path).folder)
    result = fastslow("run", "data", "--store", "store", *NOTHING, "--experiment", "wide.py")
    assert_refused(result)
    assert "--store" in result.stderr
    assert snapshot(tmp_path / "store") == near


def test_a_stale_store_is_refused_by_prepare_and_rebuilt_by_run(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    stored = tmp_path / "stores" / "data"
    stored.parent.mkdir()
    shutil.move(prepare(tmp_path).folder, stored)
    before = snapshot(stored)
    record = read_sealed(stored / "store.json", "a record")
    record["preparation"]["version"] = 0
    write_sealed(record, stored / "store.json")
    stale = snapshot(stored)
    for arguments in (["prepare", "data"], ["run", "stores/data", *NOTHING]):
        result = fastslow(*arguments)
        assert_refused(result)
        assert "repare" in result.stderr
    assert snapshot(stored) == stale
    assert_done(fastslow("run", "data", *NOTHING))
    assert snapshot(stored) == before
