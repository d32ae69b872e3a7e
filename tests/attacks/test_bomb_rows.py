"""Small npz files that inflate to fifty gigabytes, and zip files that say other sizes than true."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from solution.data.npz import read_graph
from solution.system.errors import InputError
from tests.attacks.test_npz_rows import GRAPHS, arrays_of, encode, header, read_sound, write
from tests.made.graphs import find_difference
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow
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


EMPTY_SHAPES = [(10**12, 0, 18), (0, 10**12, 18), (10**12, 3, 0), (0, 0, 10**12)]


@pytest.mark.parametrize("shape", EMPTY_SHAPES, ids=str)
@pytest.mark.parametrize("make", [header, fortran])
def test_shapes_of_nothing_are_refused(
    make: object, shape: tuple[int, ...], tmp_path: Path, guard: Guard
) -> None:
    member = make(shape) + bytes(40_000)  # type: ignore[operator]
    path = write(tmp_path / "program.npz", {**arrays_of("layout"), "node_config_feat": member})
    with pytest.raises(InputError, match="expected float32 of shape"):
        guard.call(read_graph, path, GRAPHS["layout"].collection)


# Places in an entry of the directory, and in the head of a member, of the two sizes.
ENTRY, HEAD = (b"PK\1\2", 20, 24), (b"PK\3\4", 18, 22)
GIGABYTE = 1 << 30
SIZES = {
    f"{which} {words} in the {where}": (signature, place, by)
    for where, (signature, compressed, whole) in (("directory", ENTRY), ("head", HEAD))
    for which, place in (("compressed size", compressed), ("size", whole))
    for words, by in (("too small", -9), ("too large", 9), ("a gigabyte too large", GIGABYTE))
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("kind", GRAPHS)
def test_a_size_that_is_not_true(name: str, kind: str, tmp_path: Path, guard: Guard) -> None:
    """Read rightly, or refused by name."""
    signature, place, by = SIZES[name]
    path = write(tmp_path / f"{GRAPHS[kind].name}.npz", arrays_of(kind))
    content = bytearray(path.read_bytes())
    begin = content.index(signature) + place
    (size,) = struct.unpack_from("<L", content, begin)
    struct.pack_into("<L", content, begin, size + by)
    path.write_bytes(content)
    try:
        found = guard.call(read_graph, path, GRAPHS[kind].collection)
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert find_difference(found, read_sound(kind, tmp_path)) is None


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_large_zip_format_is_read(kind: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / f"{GRAPHS[kind].name}.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays_of(kind).items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    found = guard.call(read_graph, path, GRAPHS[kind].collection)
    assert find_difference(found, read_sound(kind, tmp_path)) is None
