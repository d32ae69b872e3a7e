"""Reading npz files: what is in them arrives unchanged, and no broken file gets through."""

import dataclasses
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from solution.data.npz import detect_kind, read_graph
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
def test_file_with_one_flipped_bit_is_refused_or_reads_the_same(
    graph: Graph, tmp_path: Path
) -> None:
    path = save(tmp_path, graph)
    content, sound = path.read_bytes(), read_graph(path, graph.collection)
    generator = random.Random(0)
    for place in range(0, len(content), 8):
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            assert find_difference(read_graph(path, graph.collection), sound) is None
        except InputError as error:
            assert str(path) in str(error)
