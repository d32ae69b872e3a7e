"""Protobuf files as graphs: the competition's arrays bit for bit; no broken file gets through."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.data.npz import read_graph
from solution.domain.vocabulary import OPTION_NAMES
from solution.programs.hlo.messages import MESSAGES
from solution.programs.hlo.records import Record, read_module_file, write_record
from solution.system.errors import InputError
from tests.made import modules
from tests.made.graphs import find_difference

LAYOUT_FILE = "layout/xla/random/train/unet3d_96_module.npz"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_module_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


def read_one(message: Any, folder: Path) -> Record:
    (found,) = read_module_file(modules.write(message, folder / "program.pb"))
    return found


def refusal_of(message: Any, folder: Path) -> str:
    return refusal(modules.write(message, folder / "program.pb"))


@pytest.mark.parametrize(
    ("file", "count"), [("op_tuning_data.pb", 15), ("module_tuning_data_layout.pb", 1)]
)
def test_real_records_are_the_competitions_files_bit_for_bit(
    tpu: Path, tmp_path: Path, file: str, count: int
) -> None:
    records = read_module_file(tpu / "pb" / file)
    assert len(records) == count
    for record in records:
        kind = record.graph.collection.kind
        file_name = f"tile/xla/train/{record.graph.name}.npz" if kind == "tile" else LAYOUT_FILE
        written = write_record(record, tmp_path)
        with np.load(tpu / "npz" / file_name) as expected, np.load(written) as found:
            assert set(found) == set(expected)
            for name in expected:
                assert found[name].dtype == expected[name].dtype, name
                assert found[name].tobytes() == expected[name].tobytes(), (file_name, name)


def test_layouts_of_a_record_and_the_way_to_an_npz_file(tmp_path: Path) -> None:
    found = read_one(modules.make_layout_record(), tmp_path)
    graph = found.graph
    assert graph.key == ("layout:xla:random", "program")
    assert graph.configurable.tolist() == [4, 5]
    assert graph.runtimes is not None
    assert graph.runtimes.tolist() == [3000, 2000, 5000]
    unset = [-1] * 6
    assert graph.layouts.expand().tolist() == [
        [[0, 1, *unset[2:], 1, 0, *unset[2:], 0, 1, *unset[2:]],
         [0, *unset[1:], 1, 0, *unset[2:], *unset]],
        [[1, 0, *unset[2:], *unset, *unset], [0, *unset[1:], 0, 1, *unset[2:], *unset]],
        [[*unset] * 3, [*unset] * 3],
    ]  # fmt: skip
    path = write_record(found, tmp_path / "data")
    assert path.relative_to(tmp_path) == Path("data/npz/layout/xla/random/train/program.npz")
    told = dataclasses.replace(graph, summed=None)  # which no npz file says
    assert find_difference(read_graph(path, graph.collection), told) is None


def test_tiles_of_a_record_and_the_way_to_an_npz_file(tmp_path: Path) -> None:
    runs = [
        modules.tile_run(8, 4, time=300),
        modules.tile_run(2, 4, time=1),  # was not timed
        modules.tile_run(time=900),
        modules.tile_run(4, 4, time=200, is_default=True),
        modules.tile_run(1, 1, time=50, error=True),
    ]
    found = read_one(modules.record(*runs), tmp_path)
    assert (found.normalizer, found.left_out) == (200, 2)
    assert found.graph.runtimes is not None
    assert found.graph.runtimes.tolist() == [1.5, 4.5, 1]
    assert found.graph.tiles[:, 8:16].tolist() == [
        [8, 4, 0, 0, 0, 0, 12, 32],
        [0] * 8,  # the product of no bounds is 0
        [4, 4, 0, 0, 0, 0, 8, 16],
    ]
    path = write_record(found, tmp_path / "data", "valid")
    assert path.parent == tmp_path / "data/npz/tile/xla/valid"
    told = dataclasses.replace(found.graph, summed=None)  # which no npz file says
    assert find_difference(read_graph(path, told.collection), told) is None


def test_a_run_from_before_some_options_has_the_compilers_own(tmp_path: Path) -> None:
    message = modules.make_layout_record()
    told = message.runs[0].options.choices
    told[:] = [3, 1]
    graph = read_one(message, tmp_path).graph
    assert graph.options is not None
    assert graph.options[0].tolist() == [3, 1] + [0] * (len(OPTION_NAMES) - 2)
    assert not graph.options[1:].any()
    told[:] = [0] * (len(OPTION_NAMES) + 1)
    with pytest.raises(InputError, match=f"more than {len(OPTION_NAMES)} options"):
        read_one(message, tmp_path)


def test_options_of_a_program_without_settable_nodes(tmp_path: Path) -> None:
    negated = [modules.node(1, "parameter", modules.shape(8)),
               modules.node(2, "negate", modules.shape(8), (1,))]  # fmt: skip
    runs = [modules.layout_run(time=3000), modules.layout_run(time=2000)]
    runs[1].options.choices[:] = [3]
    own = modules.module(("main", 2, negated))
    graph = read_one(modules.record(*runs, module=own), tmp_path).graph
    assert graph.layouts.expand().shape == (2, 0, 18)
    assert graph.options is not None
    assert graph.options[:, 0].tolist() == [0, 3]


def test_a_record_without_times_is_a_test_graph(tmp_path: Path) -> None:
    found = read_one(modules.make_layout_record(timed=False), tmp_path)
    assert found.graph.runtimes is None
    assert (found.graph.num_configs, found.left_out) == (3, 0)
    path = write_record(found, tmp_path / "data")
    assert path.parent.name == "test"
    assert read_graph(path, found.graph.collection).runtimes is None


def test_names_come_from_modules_and_stay_in_the_folder(tmp_path: Path) -> None:
    names = ["fusion.1", "../../etc/x", "fusion.1", ".hidden", "a" * 400]
    prints = [(1 << 64) - 10, 0xAB, (1 << 64) - 10, 0, 1]
    records = [
        modules.record(modules.tile_run(4), module=modules.make_module(name), fingerprint=number)
        for name, number in zip(names, prints, strict=True)
    ]
    path = modules.write(MESSAGES["TuningRecords"](modules=records), tmp_path / "many.pb")
    found = read_module_file(path)
    assert [record.graph.name for record in found][:4] == [
        "fusion.1_-a_0", "_.._etc_x_ab", "fusion.1_-a_2", "hidden_0",
    ]  # fmt: skip
    written = [write_record(record, tmp_path / "data") for record in found]
    assert {path.parent for path in written} == {tmp_path / "data/npz/tile/xla/test"}
    assert len(set(written)) == 5


DEFECTS = {
    "names the id 99": modules.module(
        ("main", 2, [modules.node(2, "add", modules.shape(), (99,))])),
    "two instructions have the id 2": modules.module(
        ("main", 2, [modules.node(2, "parameter", modules.shape())] * 2)),
    "names the id 7": modules.module(
        ("main", 2, [modules.node(2, "call", modules.shape(), called_computation_ids=[7])])),
}  # fmt: skip
RECORDS = {
    "layouts for 1 of 2 nodes": modules.record(modules.layout_run([[0]])),
    "has the dimension 6": modules.record(modules.layout_run([[6]], [[0]])),
    "layouts for 4 tensors of a node": modules.record(modules.layout_run([[0]] * 4, [])),
    "others layouts": modules.record(modules.tile_run(4), modules.layout_run([], [])),
    "all of its 1 runs failed": modules.record(modules.tile_run(4, error=True)),
    "node_config_ids points outside": modules.record(config_index_to_node=[7]),
    "node_config_ids points outside the": modules.record(config_index_to_node=[(1 << 64) - 1]),
} | {defect: modules.record(module=own) for defect, own in DEFECTS.items()}


@pytest.mark.parametrize("defect", RECORDS)
def test_a_record_that_is_no_graph_is_refused(defect: str, tmp_path: Path) -> None:
    message = refusal_of(RECORDS[defect], tmp_path)
    assert defect in message
    assert "record 0 (program)" in message
    assert "file again" in message
