"""Single attacks on the reader of modules: read rightly, or refused by name, in time and memory."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solution.programs.hlo.messages import MESSAGES
from solution.programs.hlo.records import read_module_file, write_record
from solution.system.errors import InputError
from tests.made import modules
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow
REFUSED, READ = "refused", "read"


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def nest(depth: int) -> bytes:
    """A module whose instruction has a shape of shapes."""
    shape = b""
    for _ in range(depth):
        shape = field(4, shape)
    instruction = field(1, b"a") + field(2, b"add") + field(3, shape)
    return field(3, field(1, b"main") + field(2, instruction))


SOUND = modules.make_module().SerializeToString()
BYTES: dict[str, tuple[bytes, str]] = {
    "groups": (b"\x0b" * 10**6, REFUSED),
    "groups that end": (b"\x0b" * 10**6 + b"\x0c" * 10**6, REFUSED),
    "length 2^31-1": (b"\x0a" + varint(2**31 - 1) + SOUND, REFUSED),
    "length 2^63": (b"\x0a" + varint(2**63) + SOUND, REFUSED),
    "length of ten bytes": (b"\x0a" + b"\xff" * 10 + SOUND, REFUSED),
    "zeros": (bytes(10**6), REFUSED),
    "text": (b"HloModule jit_f, entry_computation_layout={...}\n" * 1000, REFUSED),
    "JSON": (b'{"module": {}}', REFUSED),
    "unknown fields": (SOUND + field(1000, b"x" * 10**6), READ),
    "unknown numbers": (SOUND + (varint(2000 << 3) + varint(2**64 - 1)) * 1000, READ),
    "twice": (SOUND + SOUND, REFUSED),
    "empty": (b"", REFUSED),
    "one byte": (b"\n", REFUSED),
    "name that is no UTF-8": (field(1, b"\xff\xfe") + SOUND, REFUSED),
}


def look(path: Path) -> int:
    """The nodes of what the file holds."""
    return sum(record.graph.num_nodes for record in read_module_file(path))


def examine(path: Path, expected: str, guard: Guard) -> None:
    if expected == READ:
        assert guard.call(look, path) > 0
        return
    with pytest.raises(InputError) as caught:
        guard.call(look, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, tmp_path: Path, guard: Guard) -> None:
    content, expected = BYTES[name]
    path = tmp_path / "mine.pb"
    path.write_bytes(content)
    examine(path, expected, guard)


@pytest.mark.parametrize(("depth", "expected"), [(60, READ), (99, REFUSED), (5_000, REFUSED)])
def test_nesting(depth: int, expected: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "mine.pb"
    path.write_bytes(nest(depth))
    examine(path, expected, guard)


def put_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


FILES: dict[str, Callable[[Path], Any]] = {
    "3 GB": put_sparse,
    "folder": Path.mkdir,
    "/dev/null": link("/dev/null"),
    "/dev/zero": link("/dev/zero"),
    "pipe": os.mkfifo,
    "nothing": link("nothing"),
    "itself": link("mine.pb"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_such_file(name: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "mine.pb"
    FILES[name](path)
    with pytest.raises((InputError, OSError)) as caught:
        guard.call(look, path)
    assert str(path) in str(caught.value)


def change(place: int, **fields: Any) -> Any:
    """The module, with other fields of one instruction of the main computation."""
    own = modules.make_module()
    instruction = own.computations[1].instructions[place]
    for name, value in fields.items():
        instruction.ClearField(name)
        if isinstance(value, list):
            getattr(instruction, name).extend(value)
        else:
            setattr(instruction, name, value)
    return own


def with_root(number: int) -> Any:
    own = modules.make_module()
    own.computations[1].root_id = number
    return own


def with_sizes(*sizes: int) -> Any:
    own = modules.make_module()
    own.computations[1].instructions[0].shape.dimensions.extend(sizes)
    return own


def make_long(count: int) -> Any:
    nodes = [modules.node(1, "parameter", modules.shape(2))]
    nodes += [modules.node(n, "tanh", modules.shape(2), (n - 1,)) for n in range(2, count)]
    return modules.module(("main", count - 1, nodes))


MODULES: dict[str, Callable[[], Any]] = {
    "repeated id": lambda: change(1, id=20),
    "unknown operand": lambda: change(1, operand_ids=[20, 999]),
    "negative operand": lambda: change(1, operand_ids=[20, -1]),
    "cycle": lambda: change(1, operand_ids=[22, 23]),
    "unknown root": lambda: with_root(999),
    "self call": lambda: change(3, called_computation_ids=[2]),
    "unknown call": lambda: change(3, called_computation_ids=[77]),
    "10^6 operands": lambda: change(1, operand_ids=[20] * 10**6),
    "60,000 dimensions of 2^62": lambda: with_sizes(*[2**62 - 1] * 60_000),
    "negative dimension": lambda: with_sizes(-1),
    "dimension of 2^63-1": lambda: with_sizes(2**63 - 1),
    "unknown opcode": lambda: change(1, opcode="os.system"),
    "opcode of a megabyte": lambda: change(1, opcode="x" * 10**6),
    "no opcode": lambda: change(1, opcode=""),
    "200,000 instructions": lambda: make_long(200_000),
    "no computations": lambda: modules.module(),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module(name: str, tmp_path: Path, guard: Guard) -> None:
    """Read, with numbers for sizes, or refused with the file's name."""
    path = modules.write(MODULES[name](), tmp_path / "mine.pb")
    try:
        nodes = guard.call(look, path)
    except InputError as error:
        assert str(path) in str(error)
        assert len(str(error)) < 3_000
    else:
        assert nodes > 0


NAMES = ("../../above", "/etc/absolute", "a/b", "a\0b", "a\nb", "", ".", "..", "-rf", "\x1b[31m",
         "\U0001f600" * 150, "x" * 10_000, "con:", "a\\b")  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_stays_inside(name: str, tmp_path: Path) -> None:
    own = modules.make_module(name)
    records = MESSAGES["TuningRecords"](modules=[modules.record(modules.tile_run(4), own=own)])
    path = modules.write(records, tmp_path / "mine.pb")
    (record,) = read_module_file(path)
    before = set(tmp_path.parent.rglob("*"))
    written = write_record(record, tmp_path / "data")
    made = {found for found in set(tmp_path.parent.rglob("*")) - before if found.is_file()}
    assert made == {written}
    assert written.resolve().is_relative_to((tmp_path / "data").resolve())
    assert len(os.fsencode(written.name)) < 200


MEETING = [
    [("a", 0), ("a", 0), ("a_0", 1)],
    [("a", 0), ("a", 0), ("a_0_0", 0), ("a_0", 0), ("a", 0)],
    [("x" * 300, 0), ("x" * 300, 0), ("x" * 400, 0)],
    [("A", 0), ("a", 0), ("A", 0), ("a", 0)],
]


@pytest.mark.parametrize("names", MEETING, ids=range(len(MEETING)))
def test_no_file_is_overwritten(names: list[tuple[str, int]], tmp_path: Path) -> None:
    made = [modules.record(modules.tile_run(4), own=modules.make_module(name), fingerprint=number)
            for name, number in names]  # fmt: skip
    path = modules.write(MESSAGES["TuningRecords"](modules=made), tmp_path / "many.pb")
    written = {write_record(record, tmp_path / "data") for record in read_module_file(path)}
    assert len(written) == len(names)
