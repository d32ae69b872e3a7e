"""Single attacks on npz files: hostile arrays, members and names, each read or refused by name."""

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.system.errors import InputError
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, to_arrays
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow
GRAPHS = {"layout": make_layout_graph(), "tile": make_tile_graph()}
REFUSED, READ = "refused", "read"


class Payload:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/unpickled-by-fastslow",)


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


def with_first(name: str, value: float, kind: str = "layout", dtype: object = None) -> Any:
    """The array with its first value changed."""
    array = arrays_of(kind)[name].astype(dtype or np.float64)
    array.reshape(-1)[0] = value
    return kind, name, array


DAMAGED = {
    "0-d": every_array(lambda array: array.reshape(-1)[:1].reshape(())),
    "complex": every_array(lambda array: array.astype(complex)),
    "text": every_array(lambda array: array.astype(str)),
    "bytes": every_array(lambda array: array.astype("S8")),
    "struct": every_array(lambda array: np.zeros(array.shape, [("a", "<f4")])),
    "date": every_array(lambda array: np.zeros(array.shape, "<M8[s]")),
    "bool": every_array(lambda array: array.astype(bool)),
    "pickle": every_array(lambda array: np.full(array.shape, Payload(), object)),
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
VALUES = [
    *(with_first("edge_index", v) for v in (-1, 2**31, 2**32)),
    *(with_first("edge_index", v, dtype=np.uint64) for v in (2**64 - 1,)),
    with_first("edge_index", 0.5),
    ("layout", "edge_index", arrays_of("layout")["edge_index"].T.copy()),
    *(with_first("node_config_ids", v) for v in (-1, 2**31, 2**32, 0.5)),
    ("layout", "node_config_ids", np.array([2, 2, 5])),
    *(with_first("node_opcode", v, dtype=np.int64) for v in (300, -1, 256 + 3)),
    *(with_first("config_runtime", v) for v in (np.nan, np.inf, -np.inf, 0, -5)),
    *(with_first("config_runtime", v, "tile") for v in (np.nan, np.inf, 0, -5)),
    *(with_first("config_runtime_normalizers", v, "tile") for v in (np.nan, np.inf, 0, -5, 5e-324)),
    ("tile", "config_runtime_normalizers", np.zeros(12)),
    ("layout", "config_runtime", np.full(12, np.nan)),
    ("layout", "config_runtime", np.ones((12, 1))),
    *(with_first("node_config_feat", v) for v in (6, -2, 0.5, np.nan)),
    *(with_first("node_feat", v) for v in (np.nan, np.inf, 1e300)),
    *(with_first("config_feat", v, "tile") for v in (np.nan, np.inf)),
]
REFUSALS = [
    *(pytest.param(*case, id=f"{what}-{case[0]}-{case[1]}")
      for what, cases in DAMAGED.items() for case in cases),
    *(pytest.param(*case, id=f"value-{place}-{case[1]}")
      for place, case in enumerate(VALUES)),
]  # fmt: skip


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
    assert not Path("/tmp/unpickled-by-fastslow").exists()


SAME = [
    *(("layout", name, array.astype(array.dtype.newbyteorder(">")))
      for name, array in arrays_of("layout").items()),
    *(("tile", name, np.asfortranarray(array)) for name, array in arrays_of("tile").items()),
    *(("layout", name, np.asfortranarray(array)) for name, array in arrays_of("layout").items()),
    *(("layout", "node_config_feat", arrays_of("layout")["node_config_feat"].astype(dtype))
      for dtype in (np.float64, np.int8, np.int64, np.longdouble)),
    with_first("node_splits", 9),
]  # fmt: skip


def read_sound(kind: str, folder: Path) -> Graph:
    """The graph as its file gives it back: runtimes of tiles are rounded there."""
    graph = GRAPHS[kind]
    (folder / "whole").mkdir()
    path = write(folder / "whole" / f"{graph.name}.npz", arrays_of(kind))
    return read_graph(path, graph.collection)


@pytest.mark.parametrize(("kind", "name", "content"), SAME)
def test_the_same_values_in_another_form_are_read(
    kind: str, name: str, content: Any, tmp_path: Path, guard: Guard
) -> None:
    path = write(tmp_path / f"{GRAPHS[kind].name}.npz", {**arrays_of(kind), name: content})
    found = guard.call(read_graph, path, GRAPHS[kind].collection)
    assert find_difference(found, read_sound(kind, tmp_path)) is None


def sound(kind: str, folder: Path) -> bytes:
    return write(folder / "sound.npz", arrays_of(kind)).read_bytes()


def rewritten(kind: str, method: int) -> Any:
    return lambda folder: write(folder / "other.npz", arrays_of(kind), method).read_bytes()


def with_member(kind: str, *names: str) -> Any:
    def change(folder: Path) -> bytes:
        path = write(folder / "other.npz", arrays_of(kind))
        with zipfile.ZipFile(path, "a") as archive:
            for name in names:
                archive.writestr(name, b"whatever")
        return path.read_bytes()

    return change


def patch(place: int, value: bytes, signature: bytes) -> Any:
    """Bytes behind the last signature replaced."""

    def change(folder: Path) -> bytes:
        content = bytearray(sound("tile", folder))
        begin = content.rindex(signature) + place
        content[begin : begin + len(value)] = value
        return bytes(content)

    return change


CENTRAL, END = b"PK\1\2", b"PK\5\6"
FILES = {
    "stored": (rewritten("tile", zipfile.ZIP_STORED), READ),
    "bzip2": (rewritten("tile", zipfile.ZIP_BZIP2), READ),
    "lzma": (rewritten("tile", zipfile.ZIP_LZMA), READ),
    "stored layouts": (rewritten("layout", zipfile.ZIP_STORED), READ),
    "bzip2 layouts": (rewritten("layout", zipfile.ZIP_BZIP2), READ),
    "prefix": (lambda f: bytes(99) + sound("tile", f), READ),
    "short suffix": (lambda f: sound("tile", f) + bytes(99), READ),
    "long suffix": (lambda f: sound("tile", f) + bytes(70_000), REFUSED),
    "gzip": (lambda f: gzip.compress(sound("tile", f)), REFUSED),
    "npy alone": (lambda _: encode(np.zeros(3)), REFUSED),
    "no members": (lambda _: END + bytes(18), REFUSED),
    "nothing": (lambda _: b"", REFUSED),
    "twice": (lambda f: 2 * sound("tile", f), READ),
    "absolute member": (with_member("tile", "/etc/x.npy"), READ),
    "member above": (with_member("tile", "../../x.npy"), READ),
    "drive": (with_member("tile", "C:\\x.npy"), READ),
    "other case": (with_member("tile", "NODE_FEAT.npy"), READ),
    "in a folder": (with_member("tile", "a/node_feat.npy"), READ),
    "duplicate": (with_member("tile", "node_feat.npy"), REFUSED),
    "encrypted": (patch(8, b"\1\0", CENTRAL), REFUSED),
    "unknown method": (patch(10, b"\x63\0", CENTRAL), REFUSED),
    "wrong sum": (patch(16, b"abcd", CENTRAL), REFUSED),
    "compressed size too small": (patch(20, b"\1\0\0\0", CENTRAL), REFUSED),
    "offset beyond the end": (patch(42, b"\xff\xff\xff\x7f", CENTRAL), REFUSED),
    "offset of another": (patch(42, bytes(4), CENTRAL), REFUSED),
    "last name beyond the end": (patch(28, b"\xff\xff", CENTRAL), READ),
    "entries that are not there": (patch(10, b"\x99\0", END), REFUSED),
    "directory beyond the end": (patch(16, b"\xff\xff\xff\x7f", END), REFUSED),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_archive(name: str, tmp_path: Path, guard: Guard) -> None:
    make, expected = FILES[name]
    graph: Graph = GRAPHS["layout" if "layouts" in name else "tile"]
    path = tmp_path / f"{graph.name}.npz"
    path.write_bytes(make(tmp_path))
    if expected == READ:
        found = guard.call(read_graph, path, graph.collection)
        assert find_difference(found, read_sound(graph.collection.kind, tmp_path)) is None
    else:
        with pytest.raises(InputError) as caught:
            guard.call(read_graph, path, graph.collection)
        assert str(path) in str(caught.value)
    assert not (tmp_path.parent / "x.npy").exists()


NAMES = (
    "a b", "a\nb", "a\tb", "ä", "e\u0301", "\u202eabc", 'a"b', "a'b", "a,b", "a;b", "=cmd", "%s",
    "-rf", "[a]*?", "a:b", "x" * 250, "\x1b[31mx", "\U0001f600", "a.b", "..a",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_strange_name_is_read(name: str, tmp_path: Path, guard: Guard) -> None:
    path = write(tmp_path / f"{name}.npz", arrays_of("tile"))
    assert guard.call(read_graph, path, GRAPHS["tile"].collection).name == name
