"""Single attacks on npz files: hostile arrays, members and names, each read or refused by name."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.programs.hlo.records import read_module_file
from solution.system.errors import InputError
from tests.made import modules
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, to_arrays
from tests.made.guarded import Guard
from tests.made.hostile import Bomb

pytestmark = pytest.mark.slow
TRACE = Path("/tmp/unpickled-by-fastslow")
GRAPHS = {"layout": make_layout_graph(), "tile": make_tile_graph()}


def arrays_of(kind: str) -> dict[str, np.ndarray]:
    return to_arrays(GRAPHS[kind])


def encode(array: np.ndarray | bytes, **options: Any) -> bytes:
    if isinstance(array, bytes):
        return array
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


def header(shape: object, descr: str = "<f4", version: int = 1) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text


def write(path: Path, members: dict[str, np.ndarray | bytes], method: int = 8) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, array in members.items():
            archive.writestr(f"{name}.npy", encode(array))
    return path


def every_array(change: Any) -> list[tuple[str, str, Any]]:
    """The change of every array of both kinds."""
    return [(kind, name, change(array)) for kind in GRAPHS for name, array in
            arrays_of(kind).items() if name != "node_splits"]  # fmt: skip


DAMAGED = {
    "0-d": every_array(lambda array: array.reshape(-1)[:1].reshape(())),
    "complex": every_array(lambda array: array.astype(complex)),
    "text": every_array(lambda array: array.astype(str)),
    "bytes": every_array(lambda array: array.astype("S8")),
    "struct": every_array(lambda array: np.zeros(array.shape, [("a", "<f4")])),
    "date": every_array(lambda array: np.zeros(array.shape, "<M8[s]")),
    "bool": every_array(lambda array: array.astype(bool)),
    "pickle": every_array(lambda array: np.full(array.shape, Bomb(TRACE), object)),
    "2^63": every_array(lambda array: header((2**63, 3))),
    "negative": every_array(lambda array: header((-1, 3))),
    "10^9 rows": every_array(lambda array: header((10**9, *array.shape[1:]))),
    "2^60 bytes": every_array(lambda array: header((2**58,))),
    "nested": every_array(lambda array: header("(" * 90 + ")" * 90)),
    "code": every_array(lambda array: header("__import__('os').getpid()")),
    "npy 3.0": every_array(lambda array: header((3,), version=3)),
    "npy 9.0": every_array(lambda array: header((3,), version=9)),
    "no header": every_array(lambda array: bytes(500)),
    "cut": every_array(lambda array: encode(array)[:-3]),
    "more": every_array(lambda array: encode(array) + bytes(3)),
    "empty": every_array(lambda array: b""),
}
REFUSALS = [
    pytest.param(*case, id=f"{what}-{case[0]}-{case[1]}")
    for what, cases in DAMAGED.items()
    for case in cases
]


@pytest.mark.parametrize(("kind", "name", "content"), REFUSALS)
def test_a_hostile_array_is_refused(
    kind: str, name: str, content: Any, tmp_path: Path, guard: Guard
) -> None:
    """And what it would do is not done. Two kinds of number may stand for another."""
    graph = GRAPHS[kind]
    if isinstance(content, np.ndarray) and content.dtype == object:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, content, allow_pickle=True)
        content = stream.getvalue()
    path = write(tmp_path / "program.npz", {**arrays_of(kind), name: content})
    with pytest.raises(InputError) as caught:
        guard.call(read_graph, path, graph.collection)
    assert str(path) in str(caught.value)
    assert not TRACE.exists()


def read_sound(kind: str, folder: Path) -> Graph:
    """The graph as its file gives it back: runtimes of tiles are rounded there."""
    graph = GRAPHS[kind]
    (folder / "whole").mkdir()
    path = write(folder / "whole" / f"{graph.name}.npz", arrays_of(kind))
    return read_graph(path, graph.collection)


NAMES = (
    "a b", "a\nb", "a\tb", "ä", "e\u0301", "\u202eabc", 'a"b', "a'b", "a,b", "a;b", "=cmd", "%s",
    "-rf", "[a]*?", "a:b", "x" * 250, "\x1b[31mx", "\U0001f600", "a.b", "..a",
)  # fmt: skip


HUGE = 50 * 10**9  # bytes
BLOCK = 1 << 20
LAYOUT_ROW = 3 * 18 * 4  # bytes


def write_zeros(archive: zipfile.ZipFile, name: str, begin: bytes, size: int) -> None:
    """A member of some bytes and then zeros, `size` in all; its checksum is not that of them.

    That is found at their end. A thousandth of the zeros is written: each megabyte is the same.
    """
    packer = zlib.compressobj(wbits=-15)
    first = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = zlib.compressobj(wbits=-15)
    block = zeros.compress(bytes(BLOCK)) + zeros.flush(zlib.Z_FULL_FLUSH)
    count = (size - len(begin)) // BLOCK
    info = zipfile.ZipInfo(name)
    info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, len(begin) + count * BLOCK
    info.compress_size = len(first) + count * len(block) + 2
    info.CRC, info.header_offset = 0, archive.start_dir
    stream = archive.fp
    assert stream is not None
    stream.seek(archive.start_dir)
    stream.write(info.FileHeader(zip64=True))
    stream.writelines([first, *count * [block], b"\x03\x00"])
    archive.start_dir, archive._didModify = stream.tell(), True  # type: ignore[attr-defined]
    archive.filelist.append(info)
    archive.NameToInfo[name] = info


def fortran(shape: tuple[int, ...]) -> bytes:
    return header(shape).replace(b"'fortran_order': False", b"'fortran_order': True ")


BOMBS = {
    "an unknown member": ("layout", "whatever", b"", True),
    "an unknown array": ("tile", "whatever.npy", header((HUGE // 4,)), True),
    "no npy header": ("layout", "config_runtime.npy", b"", False),
    "node_feat": ("layout", "node_feat.npy", header((HUGE // 560, 140)), False),
    "node_feat of tiles": ("tile", "node_feat.npy", header((HUGE // 560, 140)), False),
    "config_runtime": ("layout", "config_runtime.npy", header((HUGE // 4,)), False),
    "config_feat": ("tile", "config_feat.npy", header((HUGE // 96, 24)), False),
    "edge_index": ("tile", "edge_index.npy", header((HUGE // 16, 2), "<i8"), False),
    "Fortran layouts": ("layout", "node_config_feat.npy", fortran((HUGE // LAYOUT_ROW, 3, 18)),
                        False),
    "layouts of too many rows": ("layout", "node_config_feat.npy",
                                 header((HUGE // LAYOUT_ROW, 3, 18)), False),
    "layouts of the right shape": ("layout", "node_config_feat.npy", header((12, 3, 18)), False),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_not_inflated(name: str, tmp_path: Path, guard: Guard) -> None:
    kind, member, begin, is_read = BOMBS[name]
    graph, path = GRAPHS[kind], tmp_path / f"{GRAPHS[kind].name}.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays_of(kind).items():
            if f"{key}.npy" != member:
                archive.writestr(f"{key}.npy", encode(array))
        write_zeros(archive, member, begin, HUGE)
    with zipfile.ZipFile(path) as archive:  # an honest directory
        assert archive.getinfo(member).file_size > HUGE - 2 * BLOCK
    try:
        if is_read:
            found = guard.call(read_graph, path, graph.collection)
            assert find_difference(found, read_sound(kind, tmp_path)) is None
        else:
            with pytest.raises(InputError) as caught:
                guard.call(read_graph, path, graph.collection)
            assert str(path) in str(caught.value)
    finally:
        path.unlink()


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_large_zip_format_is_read(kind: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / f"{GRAPHS[kind].name}.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays_of(kind).items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    found = guard.call(read_graph, path, GRAPHS[kind].collection)
    assert find_difference(found, read_sound(kind, tmp_path)) is None


def look(path: Path) -> int:
    """The nodes of what the file holds."""
    return sum(record.graph.num_nodes for record in read_module_file(path))


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
