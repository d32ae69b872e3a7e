"""Every form of protobuf that holds a module is read, and no other file gets through."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.programs.hlo.messages import MAX_BYTES
from solution.programs.hlo.records import read_module_file
from solution.system.errors import InputError
from tests.made import modules
from tests.programs.hlo.test_records import refusal


@pytest.mark.parametrize("field", [(), (1,), (1, 1), (1, 1, 1)])
def test_a_module_is_read_from_every_form_that_holds_one(
    tmp_path: Path, field: tuple[int, ...]
) -> None:
    """HloModuleProto, HloProto (ModuleTuningData), HloSnapshot (TuningData), nothing deeper."""
    data = modules.make_module().SerializeToString()
    for number in field:
        data = bytes([number << 3 | 2, *varint(len(data))]) + data
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


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found an empty file"),
        (
            b"HloModule jit_f, entry_computation_layout={...}\n",
            "found text. `fastslow rank FILE` reads",
        ),
        (b"hello\n", "found text. `fastslow rank FILE` reads"),
        (b"// dumped\nHloModule jit_f\n", "found text. `fastslow rank FILE` reads"),
        (b"#loc\n" + 200 * "é".encode(), "found text. `fastslow rank FILE` reads"),
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
        nested = b"\x22" + bytes(varint(len(nested))) + nested
    inner = b"\x12\x01a\x1a" + bytes(varint(len(nested))) + nested  # an opcode and a shape
    for key in (0x12, 0x1A, 0x0A):  # instruction, computation, module
        inner = bytes([key, *varint(len(inner))]) + inner
    path = tmp_path / "deep.pb"
    path.write_bytes(inner)
    assert "truncated, or another file" in refusal(path)


def varint(number: int) -> list[int]:
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
    path.write_bytes(bytes(data[: kept or None]))
    try:
        found = read_module_file(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert all(record.graph.num_nodes > 0 for record in found)
