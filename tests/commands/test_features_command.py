"""Every column has a name, a unit and a reason, and the table can be written as a file."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.features.table import feature_table, list_columns
from tests.conftest import FastSlow, assert_done, assert_refused
from tests.made import modules
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_the_catalogue_is_the_table(kind: str) -> None:
    table = feature_table(make_layout_graph() if kind == "layout" else make_tile_graph())
    assert table.columns == [feature.name for feature in list_columns(kind)]
    for feature in list_columns(kind):
        assert feature.unit
        assert feature.reason
        assert "\n" not in feature.reason


def test_a_table_is_written_with_its_names_and_runtimes(fastslow: FastSlow, tmp_path: Path) -> None:
    graphs = [make_tile_graph(seed, name=f"kernel_{seed}") for seed in range(3)]
    for graph in graphs:
        write_graph(graph, tmp_path / "data")
    assert_done(fastslow("features", "tile:xla", "--data", "data", "--out", "table.parquet"))
    table = pl.read_parquet(tmp_path / "table.parquet")
    assert len(table) == sum(graph.num_configs for graph in graphs)
    rows = table.filter(pl.col("graph") == "kernel_1")
    assert rows["config"].to_list() == list(range(graphs[1].num_configs))
    expected = feature_table(graphs[1])
    np.testing.assert_allclose(rows.select(expected.columns), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows["runtime"], graphs[1].runtimes, rtol=1e-5)


def test_what_no_table_has_is_refused(fastslow_here: FastSlow, tmp_path: Path) -> None:
    """A word to find is of the list of columns; a collection that is not there is named."""
    write_graph(make_tile_graph(), tmp_path / "data")
    for words, expected in (
        (("tile:xla", "--find", "bytes"), ["--find"]),
        (("layout:nlp:random", "--data", "data"), ["data", "layout:nlp:random", "tile:xla"]),
    ):
        assert_refused(fastslow_here("features", *words, "--out", "t.parquet"), *expected)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}  # said before data is prepared


def test_a_file_is_shown_written_and_sound(fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "mine.pb")
    lines = assert_done(fastslow("module", "mine.pb", "--to", "data")).splitlines()
    assert max(map(len, lines)) <= 100
    shown = [line.split() for line in lines]
    assert ["mine", "7", "2", "3", "2,000", "2.50"] in shown
    assert ["parameter", "3"] in shown
    (file,) = find_files(tmp_path / "data")
    assert (file.collection.name, file.split, file.name) == ("layout:xla:random", "train", "mine")
    assert read_graph(file.path, file.collection).runtimes.tolist() == [3000, 2000, 5000]
    assert_done(fastslow("check", "data"))


def test_collection_and_split_are_as_asked_for(fastslow_here: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(timed=False), tmp_path / "mine.pb")
    options = ("--to", "data", "--collection", "layout:nlp:default", "--split", "valid")
    assert_done(fastslow_here("module", "mine.pb", *options))
    (file,) = find_files(tmp_path / "data")
    assert (file.collection.name, file.split) == ("layout:nlp:default", "valid")


def test_the_file_of_another_program_stays(fastslow_here: FastSlow, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "mine.pb")
    for _ in range(2):  # the same again is no harm
        assert_done(fastslow_here("module", path, "--to", "data"))
    modules.write(modules.make_layout_record(timed=False), path)
    again = fastslow_here("module", path, "--to", "data", "--split", "train")
    assert_refused(again, "mine.npz")
    (file,) = find_files(tmp_path / "data")
    assert read_graph(file.path, file.collection).runtimes is not None


def test_a_module_is_optimised_and_all_is_written(fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    said = assert_done(fastslow(
        "optimize", "program.pb", "--tasks", "fusion,placement,schedule", "--devices", "2",
        "--evaluations", "30", "--timeline", "line.png", "--trace", "line.json", "--out", "all.csv",
    ))  # fmt: skip
    for words in ("Before:", "After:", "lower bound", "0 P100", "1 P100", "and HEFT had",
                  "30 decisions", "Trace: line.json", "Decision: all.csv"):  # fmt: skip
        assert words in said
    assert " us" in said and "0.000 ms" not in said  # its products are tiny
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert [int(row["node"]) for row in rows] == list(range(len(rows)))
    kernels = [event for event in events if event["ph"] == "X" and event["name"] != "transfer"]
    assert kernels and len({row["kernel"] for row in rows}) >= len(kernels)


def test_what_cannot_be_done_is_said_and_inputs_stay(
    fastslow_here: FastSlow, tmp_path: Path
) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    before = path.read_bytes()
    workload = ("optimize", "rnnlm-2-small")
    own = ("optimize", path, "--evaluations", "3")
    for words, message in (
        (("optimize", "nothing.xyz"), "nothing.xyz: there is no such file"),
        ((*workload, "--module", "2"), "--module"),
        ((*workload, "--tasks", "sleep"), "There is no task 'sleep'"),
        ((*workload, "--machine", "abacus"), "There is no device 'abacus'"),
        ((*workload, "--timeline", "line.doc"), "ends with .png"),
        ((*workload, "--trace", "line.png"), "ends with .json"),
        ((*workload, "--trace", "a.json", "--out", "./a.json"), "for --trace"),
        ((*own, "--out", "program.pb"), "is an input, or lies in one. Give --out"),
        ((*own, "--out", "program.pb/a.csv"), "a file is in its place"),
        ((*own, "--out", "/dev/null"), "is a device, where a file is to be written"),
        ((*own, "--machine", "v100+p100+cpu"), "names 3 devices"),
        (("module", path, "--split", "train"), "Give --to FOLDER"),
    ):
        assert_refused(fastslow_here(*words), message)
    assert path.read_bytes() == before


def test_a_folder_may_be_called_as_a_workload(fastslow: FastSlow, tmp_path: Path) -> None:
    """No file is read, so what lies in the folder may be written again."""
    (tmp_path / "rnnlm-1x4").mkdir()
    for _ in range(2):
        words = ("optimize", "rnnlm-1x4", "--evaluations", "1", "--out", "rnnlm-1x4/a.csv")
        assert_done(fastslow(*words))


def test_the_order_of_unlike_devices_means_nothing(fastslow: FastSlow, tmp_path: Path) -> None:
    """A name with signs of a formula is drawn; one device is tried on each kind."""
    modules.write(modules.make_layout_record(), tmp_path / r"a$\frac{$b.pb")
    few = ("--evaluations", "4", "--timeline", "line.svg")
    found = []
    for machine in ("cpu+v100", "v100+cpu"):
        said = assert_done(fastslow("optimize", r"a$\frac{$b.pb", "--machine", machine, *few))
        found.append(said.partition("After: ")[2].partition(",")[0])
        first = (tmp_path / "line.svg").read_bytes()
    assert found[0] == found[1]
    fastslow("optimize", r"a$\frac{$b.pb", "--machine", machine, *few)
    assert (tmp_path / "line.svg").read_bytes() == first
