"""Reading npz files: what is in them arrives unchanged, and no broken file gets through.

Their deflated members are read as zipfile reads them, or not at all; with ISA-L and with zlib.
"""

import dataclasses
import importlib
import io
import pickle
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
from solution.data.npz import Blocks, detect_kind, read_graph, write_npz
from solution.data.npz_arrays import read_ahead
from solution.domain.collection import Collection, collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import VIRTUAL
from solution.system.errors import InputError
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, to_arrays
from tests.made.hostile import Bomb

GRAPHS = {"layout": make_layout_graph(), "tile": make_tile_graph()}
ARRAYS = [
    (kind, name) for kind, g in GRAPHS.items() for name in to_arrays(g) if name != "node_splits"
]


def save(folder: Path, graph: Graph, **changes: np.ndarray) -> Path:
    path = folder / f"{graph.name}.npz"
    np.savez_compressed(path, **(to_arrays(graph) | changes))
    return path


def change(graph: Graph, name: str, place: int | tuple[int, ...], value: float) -> np.ndarray:
    array = to_arrays(graph)[name].copy()
    array[place] = value
    return array


def refusal(path: Path, kind: Collection) -> str:
    """The message, which names the file."""
    with pytest.raises(InputError) as caught:
        read_graph(path, kind)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_comes_back_as_it_was_written(seed: int, tmp_path: Path) -> None:
    """The runtimes of tiles over the normaliser."""
    for labelled in (True, False):
        graph = make_layout_graph(seed, configs=9 + seed, labelled=labelled)
        assert find_difference(read_graph(save(tmp_path, graph), graph.collection), graph) is None
    graph = make_tile_graph(seed)
    expected = dataclasses.replace(graph, runtimes=to_arrays(graph)["config_runtime"] / 1_000_000)
    assert find_difference(read_graph(save(tmp_path, graph), graph.collection), expected) is None


def test_the_zip_format_of_large_files_is_read(tmp_path: Path) -> None:
    graph, path = GRAPHS["layout"], tmp_path / "program.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in to_arrays(graph).items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    assert find_difference(read_graph(path, graph.collection), graph) is None


def test_a_product_of_sizes_may_have_overflowed(tmp_path: Path) -> None:
    graph = GRAPHS["tile"]
    path = save(tmp_path, graph, config_feat=change(graph, "config_feat", (0, 15), -(2**31)))
    assert read_graph(path, graph.collection).tiles[0, 15] == -(2**31)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_all_zero_runtimes_are_no_labels(graph: Graph, tmp_path: Path) -> None:
    path = save(tmp_path, graph, config_runtime=np.zeros(graph.num_configs, np.int64))
    assert read_graph(path, graph.collection).runtimes is None


@pytest.mark.parametrize("block_bytes", [1, 216, 500, 2591, 2592, 1 << 20])
@pytest.mark.parametrize("order", ["C", "F"])
def test_order_in_the_file_and_size_of_blocks_change_nothing(
    order: str, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays = GRAPHS["layout"], to_arrays(GRAPHS["layout"])
    changes = {name: np.require(arrays[name], requirements=order) for name in arrays}
    assert changes["node_config_feat"].flags[f"{order}_CONTIGUOUS"]
    monkeypatch.setattr("solution.data.npz_arrays.BLOCK_BYTES", block_bytes)
    read = read_graph(save(tmp_path, graph, **changes), graph.collection)
    assert find_difference(read, graph) is None


def test_runtimes_and_normalisers_beyond_float32_are_exact(tmp_path: Path) -> None:
    runtimes, normaliser = np.array([2**24 + 1, 2**24 + 2, 2**40 + 1, 2**53 - 1]), 2**24 + 1
    for graph, times, expected in (
        (make_layout_graph(configs=4), {"config_runtime": runtimes}, runtimes),
        (make_tile_graph(configs=4), {"config_runtime": normaliser * np.arange(1, 5),
         "config_runtime_normalizers": np.full(4, normaliser)}, np.arange(1, 5)),
    ):  # fmt: skip
        read = read_graph(save(tmp_path, graph, **times), graph.collection)
        assert np.array_equal(read.runtimes, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [0, 1, 100, 0.3, 0.6, 0.95, -22, -1])
def test_truncated_file_is_refused(kept: float, tmp_path: Path) -> None:
    path = save(tmp_path, GRAPHS["layout"])
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    assert "truncated or" in refusal(path, GRAPHS["layout"].collection)


def test_missing_files_text_and_pickles_are_refused(tmp_path: Path) -> None:
    path, trace = tmp_path / "program.npz", tmp_path / "unpickled"
    assert "such file" in refusal(path, collection("tile:xla"))
    for content in (b"This is not a zip file. " * 100, pickle.dumps(Bomb(trace))):
        path.write_bytes(content)
        assert "npz file" in refusal(path, collection("tile:xla"))
    assert not trace.exists()


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_pickled_array_is_refused_and_never_unpickled(kind: str, name: str, tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    path = save(tmp_path, GRAPHS[kind], **{name: np.array([Bomb(trace)], object)})
    assert "object" in refusal(path, GRAPHS[kind].collection).lower()
    assert not trace.exists()
    with np.load(path, allow_pickle=True) as arrays:
        arrays[name]
    assert trace.exists()  # it would have gone off


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_missing_array_is_named(kind: str, name: str, tmp_path: Path) -> None:
    arrays = to_arrays(GRAPHS[kind])
    del arrays[name]
    path = tmp_path / "program.npz"
    np.savez(path, **arrays)
    assert f"needs the array {name}, found" in refusal(path, GRAPHS[kind].collection)


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_wrong_number_of_dimensions_is_named(kind: str, name: str, tmp_path: Path) -> None:
    graph = GRAPHS[kind]
    array = to_arrays(graph)[name]
    for wrong in (array[..., None], array.flat[0]):
        assert name in refusal(save(tmp_path, graph, **{name: wrong}), graph.collection)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint8])
def test_layouts_of_any_number_type_are_read(dtype: type, tmp_path: Path) -> None:
    layouts = np.maximum(GRAPHS["layout"].layouts.expand(), 0)
    path = save(tmp_path, GRAPHS["layout"], node_config_feat=layouts.astype(dtype))
    read = read_graph(path, GRAPHS["layout"].collection)
    np.testing.assert_array_equal(read.layouts.expand(), layouts)


@pytest.mark.parametrize("count", [0, 5])
def test_all_zero_runtimes_of_the_wrong_number_are_refused(count: int, tmp_path: Path) -> None:
    path = save(tmp_path, GRAPHS["layout"], config_runtime=np.zeros(count, np.int64))
    assert "config_runtime" in refusal(path, GRAPHS["layout"].collection)


WRONG_VALUES = [
    ("layout", "node_feat", (2, 5), np.nan, "node_feat has NaN"),
    ("tile", "node_feat", (2, 5), np.inf, "node_feat has NaN or infinite"),
    ("tile", "config_feat", (3, 6), np.nan, "the configurations have NaN"),  # a sum
    ("tile", "config_feat", (3, 0), np.nan, "config_feat[3, 0] is nan, expected a size from 0"),
    ("tile", "config_feat", (3, 8), -1, "config_feat[3, 8] is -1, expected a size from 0"),
    ("tile", "config_feat", (3, 21), 2**32, "config_feat[3, 21] is 4.29497e+09, expected a size"),
    ("layout", "edge_index", (0, 1), 8, "edge_index points outside the nodes 0...7"),
    ("tile", "edge_index", (0, 1), -1, "edge_index points outside the nodes 0...3"),
    ("layout", "node_config_ids", 1, 8, "node_config_ids points outside"),
    ("layout", "node_config_ids", 1, 2, "node_config_ids names these nodes more than once: 2"),
    ("layout", "node_opcode", 3, VIRTUAL, f"unknown opcode {VIRTUAL}"),
    ("tile", "node_opcode", 3, 255, "unknown opcode 255"),
    ("layout", "config_runtime", 4, 0, "config_runtime is not positive for the configurations 4"),
    ("tile", "config_runtime", 4, 0, "config_runtime is not positive for the configurations 4"),
    ("tile", "config_runtime", 4, -7, "config_runtime is not positive for the configurations 4"),
    ("tile", "config_runtime_normalizers", 0, 0, "config_runtime_normalizers"),
    ("tile", "config_runtime_normalizers", 0, -5, "config_runtime_normalizers"),
] + [
    ("layout", "node_config_feat", (5, 2, 17), value, "node_config_feat[5, 2, 17] is")
    for value in (-2, 6, 0.5, 4.999, 256, -1e9, np.nan, np.inf)
]


@pytest.mark.parametrize(("kind", "name", "place", "value", "message"), WRONG_VALUES)
def test_wrong_value_is_named(
    kind: str, name: str, place: int | tuple[int, ...], value: float, message: str, tmp_path: Path
) -> None:
    changes = {name: change(GRAPHS[kind], name, place, value)}
    assert message in refusal(save(tmp_path, GRAPHS[kind], **changes), GRAPHS[kind].collection)


def test_graph_of_the_other_kind_is_refused_with_a_hint(tmp_path: Path) -> None:
    for kind, other in (("tile", "layout"), ("layout", "tile")):
        message = refusal(save(tmp_path, GRAPHS[kind]), GRAPHS[other].collection)
        assert "collection's folder?" in message


def test_detect_kind_looks_at_the_arrays(tmp_path: Path) -> None:
    for kind, graph in GRAPHS.items():
        assert detect_kind(save(tmp_path, graph)) == kind
    np.savez(tmp_path / "other.npz", labels=np.zeros(3))
    for name in ("other.npz", "missing.npz"):
        with pytest.raises(InputError, match=name):
            detect_kind(tmp_path / name)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_flipped_bit_is_refused_or_reads_the_same(graph: Graph, tmp_path: Path) -> None:
    path = save(tmp_path, graph)
    content, sound = path.read_bytes(), read_graph(path, graph.collection)
    generator = random.Random(0)
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            assert find_difference(read_graph(path, graph.collection), sound) is None
        except InputError as error:
            assert str(path) in str(error)


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
def test_reads_are_those_of_zipfile(unit: bytes, times: int, sizes: list[int], level: int) -> None:
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
def test_numpy_reads_it_back(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
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
