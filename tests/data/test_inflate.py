"""A deflated member is read as zipfile reads it, or not at all; with ISA-L and with zlib."""

import importlib
import io
import random
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from solution.data import inflate
from solution.data.npz import Blocks, write_npz
from solution.data.npz_arrays import read_ahead

NAME = "node_config_feat.npy"
SIZES = [1, 7, 1000, 65_536, 300_000, -1]


@pytest.fixture(params=["isal", "zlib"])
def module(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module as it is, and as it is where ISA-L is not installed."""
    if request.param == "isal":
        pytest.importorskip("isal")
        yield inflate
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "isal", None)
        yield importlib.reload(inflate)
    importlib.reload(inflate)


def pack(content: bytes, level: int = 6) -> bytes:
    """A zip file with another member before and after the one that is read."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        archive.writestr("first.npy", b"other" * 100)
        archive.writestr(NAME, content)
        archive.writestr("last.npy", b"other" * 100)
    return file.getvalue()


def read_in_parts(module: ModuleType, packed: bytes, size: int) -> bytes:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        member = module.DeflatedMember(archive, archive.getinfo(NAME))
        parts = [member.read(size)]
        while parts[-1]:
            assert size < 0 or len(parts[-1]) <= size
            parts.append(member.read(size))
    return b"".join(parts)


def layout_like(count: int, seed: int = 0) -> bytes:
    """Content that compresses well, as configurations do."""
    return np.random.default_rng(seed).integers(-1, 3, count).astype(np.float32).tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [0, 1, 1000, 400_000])
def test_content_is_what_was_written(module: ModuleType, length: int, size: int) -> None:
    if size > 0:
        length = min(length, 5000 * size)
    for content in (layout_like(length // 4), random.Random(1).randbytes(length)):
        assert read_in_parts(module, pack(content), size) == content


@given(
    st.binary(max_size=200),
    st.integers(0, 400),
    st.lists(st.integers(0, 5000), min_size=1, max_size=8),
    st.sampled_from([0, 1, 6, 9]),
)
@settings(max_examples=80, deadline=None)
def test_any_reads_give_what_zipfile_gives(
    unit: bytes, times: int, sizes: list[int], level: int
) -> None:
    packed = pack(unit * times, level)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open(NAME) as expected:
        member = inflate.DeflatedMember(archive, archive.getinfo(NAME))
        for size in sizes:
            assert member.read(size) == expected.read(size)
        assert member.read() == expected.read()
        assert member.read() == member.read(10) == b""


def place_of(packed: bytes) -> tuple[int, int]:
    """Where the compressed bytes of the member begin and end."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        member = archive.getinfo(NAME)
    start = member.header_offset + 30 + len(NAME)
    return start, start + member.compress_size


def test_the_checksum_is_looked_at_with_the_last_byte(module: ModuleType) -> None:
    """Who reads as much as there is, and does not ask for more, learns of it too."""
    for length in (10, 1000, 65_536, 262_144, 1_000_000):
        content = layout_like(length // 4)
        with zipfile.ZipFile(io.BytesIO(pack(content))) as archive:
            info = archive.getinfo(NAME)
            info.CRC ^= 1 << 31
            member = module.DeflatedMember(archive, info)
            half = len(content) // 2
            with pytest.raises(zipfile.BadZipFile):
                member.read(half), member.read(len(content) - half)


@pytest.mark.parametrize("missing", [10, 1000, 5000])
def test_a_member_that_ends_early_is_refused(module: ModuleType, missing: int) -> None:
    """Also where only the directory says so: it must not wait for more forever."""
    with zipfile.ZipFile(io.BytesIO(pack(layout_like(100_000)))) as archive:
        info = archive.getinfo(NAME)
        info.compress_size -= missing
        member = module.DeflatedMember(archive, info)
        with pytest.raises(EOFError, match=NAME):
            member.read()


def test_a_file_that_shrinks_while_it_is_read_is_refused(module: ModuleType) -> None:
    file = io.BytesIO(pack(random.Random(2).randbytes(900_000)))
    with zipfile.ZipFile(file) as archive:
        member = module.DeflatedMember(archive, archive.getinfo(NAME))
        member.read(1000)
        file.truncate(500_000)
        with pytest.raises(EOFError):
            member.read()


def test_flipped_bits_are_refused_or_change_nothing(module: ModuleType) -> None:
    content = layout_like(3000)
    packed = pack(content)
    generator = random.Random(3)
    refused = 0
    for place in range(*place_of(packed)):
        damaged = bytearray(packed)
        damaged[place] ^= 1 << generator.randrange(8)
        try:
            assert read_in_parts(module, bytes(damaged), -1) == content, place
        except (zipfile.BadZipFile, EOFError, module.zlib.error):
            refused += 1
    assert refused > 500


def test_an_encrypted_member_is_refused(module: ModuleType) -> None:
    packed = bytearray(pack(layout_like(100)))
    start, _ = place_of(bytes(packed))
    packed[start - len(NAME) - 30 + 6] |= 1
    packed[packed.rindex(NAME.encode()) - 46 + 8] |= 1
    with pytest.raises(RuntimeError, match="encrypted"):
        read_in_parts(module, bytes(packed), -1)


def test_reading_ahead_gives_the_blocks_in_order_and_at_most_one_early() -> None:
    asked: list[int] = []

    def read(size: int) -> bytes:
        asked.append(size)
        return bytes([size]) * size

    sizes = [3, 1, 4, 1, 5]
    for taken, block in enumerate(read_ahead(read, sizes)):
        assert block == bytes([sizes[taken]]) * sizes[taken]
        assert len(asked) <= taken + 2
    assert asked == sizes
    assert list(read_ahead(read, [])) == []


def test_an_error_while_reading_ahead_arrives_and_no_thread_is_left() -> None:
    content = iter([b"one", b"two"])

    def read(size: int) -> bytes:
        try:
            return next(content)
        except StopIteration:
            raise EOFError("ends early") from None

    blocks = read_ahead(read, [1, 1, 1, 1])
    assert [next(blocks), next(blocks)] == [b"one", b"two"]
    with pytest.raises(EOFError):
        next(blocks)
    assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPoolExecutor")]


DTYPES = st.sampled_from(["<f4", "<f8", "|u1", "<i8", "|i1", "|b1", "<U5"])


@given(DTYPES.flatmap(lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0))))
@settings(deadline=None, max_examples=60)
def test_numpy_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray
) -> None:
    path = write_npz({"a": array, "b": array.T}, tmp_path_factory.mktemp("npz") / "x.npz")
    with np.load(path) as found:
        assert found.files == ["a", "b"]
        assert found["a"].dtype == array.dtype
        np.testing.assert_array_equal(found["a"], array)
        np.testing.assert_array_equal(found["b"], array.T)


def test_blocks_are_the_array_that_they_make_up(tmp_path: Path) -> None:
    array = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    blocks = Blocks(array.shape, array.dtype, (array[k : k + 3] for k in range(0, 10, 3)))
    pieces = write_npz({"a": blocks}, tmp_path / "pieces.npz")
    whole = write_npz({"a": array}, tmp_path / "whole.npz")
    assert pieces.read_bytes() == whole.read_bytes()


def test_bytes_do_not_tell_the_time(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_npz({"a": np.arange(5)}, tmp_path / "first.npz")) as archive:
        assert [member.date_time for member in archive.infolist()] == [(1980, 1, 1, 0, 0, 0)]
