"""`fastslow module`: protobuf files of one's own programs, as tables and as files to rank."""

from pathlib import Path

import numpy as np
import polars as pl

from solution.analysis.module_table import FEATURES
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.programs.hlo.messages import MESSAGES
from tests.conftest import FastSlow
from tests.made import modules


def test_a_file_is_shown_written_and_sound(fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "mine.pb")
    result = fastslow("module", "mine.pb", "--to", "data", "--features", "nodes.parquet")
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 100
    shown = [line.split() for line in result.stdout.splitlines()]
    assert ["mine", "7", "2", "3", "2,000", "2.50"] in shown
    assert ["parameter", "3"] in shown
    (file,) = find_files(tmp_path / "data")
    assert (file.collection.name, file.split, file.name) == ("layout:xla:random", "train", "mine")
    assert read_graph(file.path, file.collection).runtimes.tolist() == [3000, 2000, 5000]
    assert fastslow("check", "data").returncode == 0
    table = pl.read_parquet(tmp_path / "nodes.parquet")
    assert table.columns == ["graph", "node", *(feature.name for feature in FEATURES)]
    assert table["node"].to_list() == list(range(7))
    assert table["dot_terms"].to_list() == [0, 0, 0, 0, 16, 0, 0]


def test_collection_and_split_are_what_is_asked_for(fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(timed=False), tmp_path / "mine.pb")
    options = ("--to", "data", "--collection", "layout:nlp:default", "--split", "valid")
    result = fastslow("module", "mine.pb", *options)
    assert result.returncode == 0, result.stderr
    (file,) = find_files(tmp_path / "data")
    assert (file.collection.name, file.split) == ("layout:nlp:default", "valid")


def test_a_program_that_was_never_run_is_ranked_beside_others(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    """Its configurations are ranked by a model of kernels that were."""
    generator = np.random.default_rng(0)
    runs = [
        [modules.tile_run(4 << n, 8, time=int(generator.integers(100, 900))) for n in range(4)]
        for _ in range(4)
    ]
    records = [
        modules.record(*own, own=modules.make_module(f"kernel.{place}"), fingerprint=place)
        for place, own in enumerate(runs)
    ]
    modules.write(MESSAGES["TuningRecords"](modules=records), tmp_path / "timed.pb")
    mine = modules.record(*(modules.tile_run(4 << n, 8) for n in range(6)))
    modules.write(mine, tmp_path / "mine.pb")
    for file in ("timed.pb", "mine.pb"):
        assert fastslow("module", file, "--to", "data").returncode == 0
    result = fastslow(
        "run", "data", "--run", "runs/mine", "--experiment", "nothing_001",
        "--experiment", "tile_lightgbm_001", "--recipe", "mean_rank_001", "--scheme", "graph",
        "--folds", "2",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    header, row = (tmp_path / "runs/mine/submission.csv").read_text().splitlines()
    assert header == "ID,TopConfigs"
    name, ranking = row.split(",")
    assert name == "tile:xla:mine"
    assert len(set(ranking.split(";"))) == 5


def test_what_cannot_be_used_is_a_message(fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "mine.pb")
    result = fastslow("module", "mine.pb", "--collection", "tile:xla")
    assert result.returncode == 2
    assert "tile:xla" in result.stderr
    (tmp_path / "text.pb").write_text("HloModule jit_f")
    result = fastslow("module", "text.pb")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "binary protobuf" in result.stderr


def test_the_file_of_another_program_stays(fastslow: FastSlow, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "mine.pb")
    for _ in range(2):  # the same again is no harm
        assert fastslow("module", path, "--to", "data").returncode == 0
    modules.write(modules.make_layout_record(timed=False), path)
    again = fastslow("module", path, "--to", "data", "--split", "train")
    assert again.returncode == 2
    assert "mine.npz" in again.stderr
    (file,) = find_files(tmp_path / "data")
    assert read_graph(file.path, file.collection).runtimes is not None
