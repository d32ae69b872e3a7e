"""Protobuf files as graphs: the competition's arrays bit for bit; no broken file gets through."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution import vocabulary
from solution.data.hlo.messages import DESCRIPTION, MAX_BYTES, MESSAGES
from solution.data.hlo.nodes import read_nodes, wrap
from solution.data.hlo.records import Record, read_module_file
from solution.data.hlo.writing import write_record
from solution.data.npz import read_graph
from solution.errors import InputError
from tests import modules
from tests.graphs import find_difference

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
        place = f"tile/xla/train/{record.graph.name}.npz" if kind == "tile" else LAYOUT_FILE
        written = write_record(record, tmp_path)
        with np.load(tpu / "npz" / place) as expected, np.load(written) as found:
            assert set(found) == set(expected)
            for name in expected:
                assert found[name].dtype == expected[name].dtype, name
                assert found[name].tobytes() == expected[name].tobytes(), (place, name)


def test_the_compiled_description_is_that_of_the_source() -> None:
    source = re.sub(r"//.*", "", DESCRIPTION.with_suffix(".proto").read_text(encoding="utf-8"))
    written = {
        (message, name, int(number))
        for message, body in re.findall(r"message (\w+) \{(.*?)\n\}", source, re.DOTALL)
        for name, number in re.findall(r"(\w+) = (\d+);", body)
    }
    compiled = {
        (name, field.name, field.number)
        for name, message in MESSAGES.items()
        for field in message.DESCRIPTOR.fields
    }
    assert written == compiled


def test_nodes_and_edges_of_a_module() -> None:
    nodes = read_nodes(modules.make_module())
    names = [vocabulary.OPCODES[opcode] for opcode in nodes.opcodes]
    assert names == ["parameter", "parameter", "add", "parameter", "dot", "reshape", "reduce"]
    # Operands once each; a reduce reads the root of what it calls.
    assert nodes.edges.tolist() == [[2, 0], [2, 1], [4, 3], [5, 4], [6, 2], [6, 5]]
    assert nodes.splits.tolist() == [[0, 7]]
    assert nodes.features[:, vocabulary.IS_ROOT].tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert nodes.features[:, 30].tolist() == [0, 1, 0, 0, 0, 0, 0]  # the parameters' numbers
    product = nodes.features[4]
    assert product[vocabulary.SHAPE_DIMENSIONS].tolist() == [8, 4, 0, 0, 0, 0]
    assert product[[vocabulary.SHAPE_SUM, vocabulary.SHAPE_PRODUCT]].tolist() == [12, 32]
    assert product[vocabulary.NODE_LAYOUT].tolist() == [1, 0, 0, 0, 0, 0]
    assert np.flatnonzero(product[vocabulary.ELEMENT_TYPE]).tolist() == [11]  # f32
    scalar = nodes.features[0]
    assert scalar[[vocabulary.SHAPE_SUM, vocabulary.SHAPE_PRODUCT]].tolist() == [0, 1]


def test_every_field_of_an_instruction_has_its_columns() -> None:
    dimension = MESSAGES["WindowDimension"](
        size=3, stride=2, padding_low=-1, padding_high=1, window_dilation=4, base_dilation=5,
        window_reversal=True,
    )  # fmt: skip
    convolution = MESSAGES["ConvolutionDimensions"](
        input_batch_dimension=1, input_feature_dimension=2, input_spatial_dimensions=[3, 4],
        kernel_input_feature_dimension=5, kernel_output_feature_dimension=6,
        kernel_spatial_dimensions=[7], output_batch_dimension=8, output_feature_dimension=9,
    )  # fmt: skip
    pads = [MESSAGES["PaddingDimension"](edge_padding_low=2, edge_padding_high=3)] * 3
    slices = [MESSAGES["SliceDimension"](start=1, limit=7, stride=2)] * 2
    strange = modules.node(
        1, "convolution", modules.shape(2, 3, kind=16), dimensions=[1, 0],
        window=MESSAGES["Window"](dimensions=[dimension, MESSAGES["WindowDimension"](size=5)]),
        convolution=convolution, feature_group_count=2, batch_group_count=3, slices=slices,
        dynamic_slice_sizes=[4, 5, 6], padding=MESSAGES["Padding"](dimensions=pads), is_stable=True,
    )  # fmt: skip
    (row,) = read_nodes(modules.module(("while_body", 0, [strange]))).features
    assert np.flatnonzero(row[vocabulary.ELEMENT_TYPE]).tolist() == [13]  # bf16 is number 16
    assert row[vocabulary.DIMENSIONS].tolist() == [1, 0, 0, 0, 0, 0]
    sequences = {37: [3, 5, 8, 15], 45: [2, 0, 2, 0], 53: [-1, 0, -1, 0], 61: [1, 0, 1, 0],
                 69: [4, 0, 4, 0], 77: [5, 0, 5, 0]}  # fmt: skip
    for first, (one, two, total, product) in sequences.items():
        assert row[first : first + 8].tolist() == [one, two, 0, 0, 0, 0, total, product]
    assert row[85:93].tolist() == [1, 0, 0, 0, 0, 0, 1, 1]  # reversed: yes, no; counts of both
    assert row[93:107].tolist() == [1, 2, 3, 4, 0, 0, 5, 6, 7, 0, 0, 0, 8, 9]
    assert row[107:109].tolist() == [2, 3]
    assert row[109:121].tolist() == [1, 1, 2, 1, 2, 2, 4, 4, 7, 7, 14, 49]  # start, stride, limit
    assert row[121:125].tolist() == [4, 5, 15, 120]
    assert row[125:134].tolist() == [2, 2, 6, 8, 3, 3, 9, 27, 1]
    assert row[134:].tolist() == [1, 0, 0, 0, 0, 0]


def test_a_product_wraps_around_as_64_bits_do() -> None:
    huge = modules.module(
        ("main", 1, [modules.node(1, "parameter", modules.shape(1 << 40, 3 << 24))])
    )
    product = np.int64(1 << 40)
    with np.errstate(over="ignore"):
        product = product * np.int64(3 << 24)
    assert read_nodes(huge).features[0, vocabulary.SHAPE_PRODUCT] == np.float32(product)
    assert wrap((1 << 63) - 1) == (1 << 63) - 1
    assert wrap(1 << 63) == -(1 << 63)


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
    assert find_difference(read_graph(path, graph.collection), graph) is None


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
    assert find_difference(read_graph(path, found.graph.collection), found.graph) is None


def test_a_record_without_times_is_a_test_graph(tmp_path: Path) -> None:
    found = read_one(modules.make_layout_record(timed=False), tmp_path)
    assert found.graph.runtimes is None
    assert (found.graph.num_configs, found.left_out) == (3, 0)
    path = write_record(found, tmp_path / "data")
    assert path.parent.name == "test"
    assert read_graph(path, found.graph.collection).runtimes is None


@pytest.mark.parametrize("field", [(), (1,), (1, 1), (1, 1, 1)])
def test_a_module_is_read_from_every_form_that_holds_one(
    tmp_path: Path, field: tuple[int, ...]
) -> None:
    """HloModuleProto, HloProto (ModuleTuningData), HloSnapshot (TuningData), nothing deeper."""
    data = modules.make_module().SerializeToString()
    for number in field:
        data = bytes([number << 3 | 2, *encode_length(len(data))]) + data
    path = tmp_path / "module_0001.hlo.pb"
    path.write_bytes(data)
    if len(field) == 3:
        assert "expected a binary protobuf" in refusal(path)
        return
    (found,) = read_module_file(path)
    assert found.graph.configurable.tolist() == [4, 5]  # by the competition's rule
    assert (found.graph.layouts.expand() == -1).all()
    assert found.graph.num_configs == 1
    assert found.graph.runtimes is None


def encode_length(length: int) -> list[int]:
    return [length & 127 | 128, length >> 7] if length > 127 else [length]


def test_a_buffer_assignment_is_not_taken_for_runs(tmp_path: Path) -> None:
    """HloProto has it where ModuleTuningData has its runs."""
    data = modules.record().SerializeToString()
    buffer = b"\x08\x07\x10\x80\x02\x1a\x04\x12\x00\x20\x03"  # id, size, where it is defined
    assignment = bytes([0x0A, len(buffer)]) + buffer
    path = tmp_path / "module.pb"
    path.write_bytes(data + bytes([0x1A, len(assignment)]) + assignment)
    (found,) = read_module_file(path)
    assert found.graph.num_configs == 1
    assert found.graph.runtimes is None


def test_names_come_from_modules_and_stay_in_the_folder(tmp_path: Path) -> None:
    names = ["fusion.1", "../../etc/x", "fusion.1", ".hidden", "a" * 400]
    prints = [(1 << 64) - 10, 0xAB, (1 << 64) - 10, 0, 1]
    records = [
        modules.record(modules.tile_run(4), own=modules.make_module(name), fingerprint=number)
        for name, number in zip(names, prints, strict=True)
    ]
    path = modules.write(MESSAGES["TuningRecords"](modules=records), tmp_path / "many.pb")
    found = read_module_file(path)
    assert [own.graph.name for own in found][:4] == [
        "fusion.1_-a_0", "_.._etc_x_ab", "fusion.1_-a_2", "hidden_0",
    ]  # fmt: skip
    written = [write_record(own, tmp_path / "data") for own in found]
    assert {own.parent for own in written} == {tmp_path / "data/npz/tile/xla/test"}
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
} | {defect: modules.record(own=own) for defect, own in DEFECTS.items()}


@pytest.mark.parametrize("defect", RECORDS)
def test_a_record_that_is_no_graph_is_refused(defect: str, tmp_path: Path) -> None:
    message = refusal_of(RECORDS[defect], tmp_path)
    assert defect in message
    assert "record 0 (program)" in message
    assert "Write the file again" in message


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found an empty file"),
        (b"HloModule jit_f, entry_computation_layout={...}\n", "truncated, or another file"),
        (b"PK\x03\x04 an npz file", "truncated, or another file"),
        (b"\x00" * 100, "truncated, or another file"),
        (b"\x0a\x02\x0a\x00", "found no instructions in it"),
    ],
)
def test_a_file_of_another_kind_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "other.pb"
    path.write_bytes(content)
    message = refusal(path)
    assert found in message
    assert "--xla_dump_hlo_as_proto" in message


def test_no_file_a_folder_and_a_file_that_is_too_large_are_refused(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "nothing.pb")
    assert "found a folder" in refusal(tmp_path)
    large = tmp_path / "large.pb"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no room on the disk
    assert "found 2,147,483,648" in refusal(large)


def test_shapes_nested_without_end_are_refused(tmp_path: Path) -> None:
    nested = b""
    for _ in range(5000):
        nested = b"\x22" + bytes(_varint(len(nested))) + nested
    inner = b"\x12\x01a\x1a" + bytes(_varint(len(nested))) + nested  # an opcode and a shape
    for key in (0x12, 0x1A, 0x0A):  # instruction, computation, module
        inner = bytes([key, *_varint(len(inner))]) + inner
    path = tmp_path / "deep.pb"
    path.write_bytes(inner)
    assert "truncated, or another file" in refusal(path)


def _varint(number: int) -> list[int]:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return [*parts, number]


@given(st.integers(0, 400), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_damage_goes_further_than_a_message(
    tmp_path: Path, kept: int, changes: list[tuple[int, int]]
) -> None:
    """A file that is cut or changed is refused, or still is a sound graph."""
    data = bytearray(modules.make_layout_record().SerializeToString())
    for place, value in changes:
        data[place % len(data)] = value
    path = tmp_path / "damaged.pb"
    path.write_bytes(bytes(data[: kept or None]) if not changes else bytes(data))
    try:
        (*found,) = read_module_file(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert all(record.graph.num_nodes > 0 for record in found)
