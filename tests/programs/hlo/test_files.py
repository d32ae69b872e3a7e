"""Protobuf files as graphs: the competition's arrays bit for bit; no broken file gets through."""

import dataclasses
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.vocabulary import OPTION_NAMES
from solution.programs.hlo.messages import DESCRIPTION, MAX_BYTES, MESSAGES
from solution.programs.hlo.nodes import read_nodes, summarise
from solution.programs.hlo.records import Record, read_module_file, write_record
from solution.system.errors import InputError
from solution.system.names import MAX_NAME
from tests.conftest import FastSlow
from tests.made import modules
from tests.made.graphs import find_difference
from tests.made.guarded import Guard
from tests.made.hostile import put_device, put_pipe

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


def write_records(names: list[tuple[str, int]], path: Path) -> Path:
    """A file of records of tiles, by the names of their modules and their fingerprints."""
    records = [
        modules.record(modules.tile_run(4), module=modules.make_module(name), fingerprint=number)
        for name, number in names
    ]
    return modules.write(MESSAGES["TuningRecords"](modules=records), path)


@pytest.mark.parametrize(
    ("file", "count"), [("op_tuning_data.pb", 15), ("module_tuning_data_layout.pb", 1)]
)
def test_real_records_are_their_npz_files(tpu: Path, tmp_path: Path, file: str, count: int) -> None:
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
    np.testing.assert_array_equal(graph.runtimes, [3000, 2000, 5000])
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
    np.testing.assert_array_equal(found.graph.runtimes, [1.5, 4.5, 1])
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
    assert graph.options is not None and graph.options[:, 0].tolist() == [0, 3]


def test_a_record_without_times_is_a_test_graph(tmp_path: Path) -> None:
    found = read_one(modules.make_layout_record(timed=False), tmp_path)
    assert found.graph.runtimes is None
    assert (found.graph.num_configs, found.left_out) == (3, 0)
    path = write_record(found, tmp_path / "data")
    assert path.parent.name == "test"
    assert read_graph(path, found.graph.collection).runtimes is None


def test_names_come_from_modules_and_stay_in_the_folder(tmp_path: Path) -> None:
    large = (1 << 64) - 10
    names = [("fusion.1", large), ("../../etc/x", 0xAB), ("fusion.1", large), (".hidden", 0),
             ("a" * 400, 1)]  # fmt: skip
    found = read_module_file(write_records(names, tmp_path / "many.pb"))
    assert [record.graph.name for record in found][:4] == [
        "fusion.1_-a_0", "_.._etc_x_ab", "fusion.1_-a_2", "hidden_0",
    ]  # fmt: skip
    written = [write_record(record, tmp_path / "data") for record in found]
    assert {path.parent for path in written} == {tmp_path / "data/npz/tile/xla/test"}
    assert len(set(written)) == 5


DEFECTS = {
    "names the id 99": [modules.node(2, "add", modules.shape(), (99,))],
    "two instructions have the id 2": [modules.node(2, "parameter", modules.shape())] * 2,
    "names the id 7": [modules.node(2, "call", modules.shape(), called_computation_ids=[7])],
}
RECORDS = {
    "layouts for 1 of 2 nodes": modules.record(modules.layout_run([[0]])),
    "has the dimension 6": modules.record(modules.layout_run([[6]], [[0]])),
    "layouts for 4 tensors of a node": modules.record(modules.layout_run([[0]] * 4, [])),
    "others layouts": modules.record(modules.tile_run(4), modules.layout_run([], [])),
    "all of its 1 runs failed": modules.record(modules.tile_run(4, error=True)),
    "node_config_ids points outside": modules.record(config_index_to_node=[7]),
    "node_config_ids points outside the": modules.record(config_index_to_node=[(1 << 64) - 1]),
} | {
    defect: modules.record(module=modules.module(("main", 2, nodes)))
    for defect, nodes in DEFECTS.items()
}


@pytest.mark.parametrize("defect", RECORDS)
def test_a_record_that_is_no_graph_is_refused(defect: str, tmp_path: Path) -> None:
    message = refusal(modules.write(RECORDS[defect], tmp_path / "program.pb"))
    assert all(words in message for words in (defect, "record 0 (program)", "file again"))


def wrap(number: int, content: bytes) -> bytes:
    """A message that has the content in the field of this number."""
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@pytest.mark.parametrize("field", [(), (1,), (1, 1), (1, 1, 1)])
def test_a_module_is_read_from_every_form(tmp_path: Path, field: tuple[int, ...]) -> None:
    """HloModuleProto, HloProto (ModuleTuningData), HloSnapshot (TuningData), nothing deeper."""
    data = modules.make_module().SerializeToString()
    for number in field:
        data = wrap(number, data)
    path = tmp_path / "module_0001.hlo.pb"
    path.write_bytes(data)
    if len(field) == 3:
        assert "binary protobuf" in refusal(path)
        return
    (found,) = read_module_file(path)
    assert found.graph.configurable.tolist() == [4, 5]  # by the competition's rule
    assert (found.graph.layouts.expand() == -1).all()
    assert found.graph.num_configs == 1 and found.graph.runtimes is None


def test_a_buffer_assignment_is_not_taken_for_runs(tmp_path: Path) -> None:
    """HloProto has it where ModuleTuningData has its runs."""
    buffer = b"\x08\x07\x10\x80\x02\x1a\x04\x12\x00\x20\x03"  # id, size, where it is defined
    data = modules.record().SerializeToString() + wrap(3, wrap(1, buffer))
    path = tmp_path / "module.pb"
    path.write_bytes(data)
    (found,) = read_module_file(path)
    assert found.graph.num_configs == 1 and found.graph.runtimes is None


@pytest.mark.parametrize(("content", "found"), [
    (b"", "empty file"), (b"HloModule jit_f, entry_computation_layout={...}\n", "FILE` reads"),
    (b"hello\n", "FILE` reads"), (b"// dumped\nHloModule jit_f\n", "FILE` reads"),
    (b"#loc\n" + 200 * "é".encode(), "FILE` reads"), (b"PK\x03\x04 an npz file", "another file"),
    (b"\x00" * 100, "another file"), (b"\x0a\x02\x0a\x00", "no instructions"),
])  # fmt: skip
def test_a_file_of_another_kind_is_refused(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "other.pb"
    path.write_bytes(content)
    message = refusal(path)
    assert found in message and "--xla_dump_hlo_as_proto" in message


def test_no_file_a_folder_and_a_file_that_is_too_large_are_refused(tmp_path: Path) -> None:
    assert "such file" in refusal(tmp_path / "nothing.pb")
    assert "found a folder" in refusal(tmp_path)
    large = tmp_path / "large.pb"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no room on the disk
    assert "found 2,147,483,648" in refusal(large)


def test_shapes_nested_without_end_are_refused(tmp_path: Path) -> None:
    nested = b""
    for _ in range(5000):
        nested = wrap(4, nested)
    inner = wrap(2, b"a") + wrap(3, nested)  # an opcode and a shape
    for number in (2, 3, 1):  # instruction, computation, module
        inner = wrap(number, inner)
    path = tmp_path / "deep.pb"
    path.write_bytes(inner)
    assert "another file" in refusal(path)


@given(st.integers(0, 400), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_is_a_message(tmp_path: Path, kept: int, changes: list[tuple[int, int]]) -> None:
    """A file that is cut or changed is refused, or still is a sound graph."""
    data = bytearray(modules.make_layout_record().SerializeToString())
    for position, value in changes:
        data[position % len(data)] = value
    path = tmp_path / "damaged.pb"
    path.write_bytes(bytes(data[: kept or None]))
    try:
        found = read_module_file(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert all(record.graph.num_nodes > 0 for record in found)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_a_product_wraps_as_numbers_of_64_bits_do(values: list[int]) -> None:
    with np.errstate(over="ignore"):
        product = np.array(values, np.int64).prod()
        total = np.array(values, np.int64).sum()
    assert summarise(values, 2)[2:] == [total, product]


def summarise_many(count: int) -> float:
    """Processor seconds for so many large sizes."""
    begin = time.process_time()
    summarise([2**62 - 1] * count, 6)
    return time.process_time() - begin


def test_a_product_of_many_sizes_takes_time_for_each_alone(guard: Guard) -> None:
    """A number of as many digits would take a thousand times longer for thirty times as many."""
    few, many = (min(guard.call(summarise_many, n) for _ in range(3)) for n in (20_000, 600_000))
    assert many < 300 * few
    assert math.isfinite(many)


@pytest.mark.parametrize("names", [
    [("a", 0), ("a", 0), ("a_0", 1)], [("a", 0), ("a", 0), ("a_0_0", 0), ("a_0", 0), ("a", 0)],
    [("a_0", 1), ("a", 0), ("a", 0), ("a_0_1", 0), ("a_0_2", 0)],
    [("x", 0), ("x", 0), ("x_0", 0), ("x_0", 0), ("x_0_0", 0), ("x_0_1", 0)],
    [("\U0001f600" * 150, 0), ("\U0001f600" * 150, 1)],
    [("ü" * 200, 0), ("ü" * 200, 0), ("ü" * 200, 1)],
])  # fmt: skip
def test_no_two_records_become_one_file(names: list[tuple[str, int]], tmp_path: Path) -> None:
    found = read_module_file(write_records(names, tmp_path / "many.pb"))
    written = {write_record(record, tmp_path / "data") for record in found}
    assert len(written) == len(names)
    assert all(len(os.fsencode(path.name)) < 200 for path in written)


def test_a_name_of_letters_that_take_many_bytes_is_cut_between_letters(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".pb")  # 243 bytes
    modules.write(modules.make_layout_record(), path)
    (record,) = read_module_file(path)
    assert record.graph.name == "ü" * (MAX_NAME // 2)


@pytest.mark.parametrize("put", [put_pipe, put_device])
def test_pipes_and_devices_are_refused(
    put: Callable[[Path], None], tmp_path: Path, guard: Guard
) -> None:
    put(tmp_path / "module.pb")
    with pytest.raises(InputError, match="expected a"):
        guard.call(read_module_file, tmp_path / "module.pb")


def test_a_file_called_like_markup_is_read(fastslow: FastSlow, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "[" / "b].pb")
    assert fastslow("module", path.relative_to(tmp_path)).returncode == 0
    path = modules.write(modules.make_layout_record(), tmp_path / "[red]x.pb")
    assert "[red]x" in fastslow("module", path.name).stdout


def test_the_compiled_description_is_that_of_the_source() -> None:
    source = re.sub(r"//.*", "", DESCRIPTION.with_suffix(".proto").read_text(encoding="utf-8"))
    written = {
        (message, name, int(number))
        for message, body in re.findall(r"message (\w+) \{(.*?)\n\}", source, re.DOTALL)
        for name, number in re.findall(r"(\w+) = (\d+);", body)
    }
    compiled = {(n, f.name, f.number) for n, m in MESSAGES.items() for f in m.DESCRIPTOR.fields}
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


# A process begins with the peak of memory of the process that started it, so a small one starts it.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, file=sys.stderr)
"""


@pytest.mark.parametrize(("size", "code", "words", "command"), [
    (5_000_000, 0, "", ("rank", "--configs", "9")), (5_000_000, 0, "", ("module",)),
    (5_000_000, 2, "fits the memory", ("optimize", "--evaluations", "2")),  # of the devices
    (2**62, 2, "sizes.pb", ("module",)),
])  # fmt: skip
def test_sizes_in_a_file_cost_no_memory(
    size: int, code: int, words: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    """Tensors of 20 GB are described, of 2^63 numbers refused, and none is allocated."""
    module = modules.make_module()
    for instruction in module.computations[-1].instructions:
        instruction.shape.dimensions[:] = [size, 1000][: len(instruction.shape.dimensions)]
    path = modules.write(module, tmp_path / "sizes.pb")
    called = [sys.executable, "-m", "solution", command[0], path, *command[1:]]
    printed = subprocess.run(
        [sys.executable, "-c", MEASURED, *called],
        cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ).stderr  # fmt: skip
    found, megabytes = printed.splitlines()[-1].split()
    assert int(found) == code and words in printed, printed
    assert "Traceback" not in printed and float(megabytes) < 2000


def change(place: int, **fields: Any) -> Any:
    """The module, with other fields of one instruction of the main computation."""
    own = modules.make_module()
    instruction = own.computations[1].instructions[place]
    for name in fields:
        instruction.ClearField(name)
    instruction.MergeFrom(MESSAGES["Instruction"](**fields))
    return own


def with_sizes(*sizes: int) -> Any:
    own = modules.make_module()
    own.computations[1].instructions[0].shape.dimensions.extend(sizes)
    return own


def make_long(count: int) -> Any:
    nodes = [modules.node(1, "parameter", modules.shape(2))]
    nodes += [modules.node(n, "tanh", modules.shape(2), (n - 1,)) for n in range(2, count)]
    return modules.module(("main", count - 1, nodes))


HOSTILE: dict[str, Callable[[], Any]] = {
    "negative operand": lambda: change(1, operand_ids=[20, -1]),
    "cycle": lambda: change(1, operand_ids=[22, 23]),
    "self call": lambda: change(3, called_computation_ids=[2]),
    "10^6 operands": lambda: change(1, operand_ids=[20] * 10**6),
    "60,000 dimensions of 2^62": lambda: with_sizes(*[2**62 - 1] * 60_000),
    "negative dimension": lambda: with_sizes(-1),
    "dimension of 2^63-1": lambda: with_sizes(2**63 - 1),
    "unknown opcode": lambda: change(1, opcode="os.system"),
    "opcode of a megabyte": lambda: change(1, opcode="x" * 10**6),
    "no opcode": lambda: change(1, opcode=""),
    "20,000 instructions": lambda: make_long(20_000),
    "no computations": lambda: modules.module(),
}


def count_nodes(path: Path) -> int:
    return sum(record.graph.num_nodes for record in read_module_file(path))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_module_is_read_or_refused(name: str, tmp_path: Path, guard: Guard) -> None:
    path = modules.write(HOSTILE[name](), tmp_path / "mine.pb")
    try:
        assert guard.call(count_nodes, path) > 0
    except InputError as error:
        assert str(path) in str(error) and len(str(error)) < 3_000
