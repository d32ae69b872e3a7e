"""Rows of a kernel's tiles: values worked out by hand, and the choice of the output tensor."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_TILE_FEATURES, OPCODE_IDS
from solution.features.padding import repair_padding
from solution.features.table import feature_table
from solution.features.tile.tiling import output_node
from tests.made.graphs import make_nodes, make_tile_graph

ROWS, INNER, COLUMNS = 100, 64, 200


def make_kernel(
    nodes: Sequence[tuple[str, tuple[int, ...]]], edges: list[tuple[int, int]], tiles: np.ndarray
) -> Graph:
    """Nodes are (opcode, shape)."""
    return Graph(
        name="kernel",
        collection=collection("tile:xla"),
        node_features=make_nodes([shape for _, shape in nodes]),
        node_opcodes=np.array([OPCODE_IDS[opcode] for opcode, _ in nodes], np.uint8),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        configurable=np.empty(0, np.int64),
        configs=tiles,
        runtimes=None,
    )


def make_tile(*output: int, reduction: int = 0, kernel: tuple[int, ...] = ()) -> np.ndarray:
    tile = np.zeros(NUM_TILE_FEATURES, np.float32)
    for first, sizes in ((0, kernel), (8, output), (16, (reduction,) if reduction else ())):
        tile[first : first + len(sizes)] = sizes
        tile[first + 6] = sum(sizes)
        tile[first + 7] = math.prod(sizes) if sizes else 0
    return tile


def describe(*tiles: np.ndarray) -> list[dict[str, float]]:
    """The rows of one matrix product (100, 64) x (64, 200)."""
    nodes = [
        ("parameter", (ROWS, INNER)),
        ("parameter", (INNER, COLUMNS)),
        ("dot", (ROWS, COLUMNS)),
    ]
    graph = make_kernel(nodes, [(2, 0), (2, 1)], np.stack(tiles))
    return feature_table(graph).to_dicts()


def pick(row: dict[str, float], expected: dict[str, float]) -> dict[str, float]:
    return {name: row[name] for name in expected}


def test_a_tile_of_a_matrix_product_by_hand() -> None:
    """Tiles of 32 x 64: 4 x 4 of them cover 128 x 256."""
    expected = {
        "tiles": math.log(1 + 16),
        "tiles_0": math.log(4),
        "tiles_1": math.log(4),
        "tiles_2": 0,
        "share_0": math.log(32 / 100),
        "share_1": math.log(64 / 200),
        "share_2": 0,
        "waste": math.log(128 * 256 / (100 * 200)),
        "minor_0": math.log(1 + 64),
        "minor_1": math.log(1 + 32),
        "minor_2": 0,
        "minor_tiles_0": math.log(4),
        "minor_tiles_1": math.log(4),
        "minor_tiles_2": 0,
        "tile_volume": math.log(1 + 32 * 64),
        "output_0": math.log(1 + 32),
        "output_sum": math.log(1 + 96),
        "output_product": math.log(1 + 2048),
    }
    (row,) = describe(make_tile(32, 64))
    assert pick(row, expected) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_kernel_is_the_same_in_every_row() -> None:
    expected = {
        "contracted_size": math.log(INNER),
        "operations": math.log(ROWS * INNER * COLUMNS + ROWS * INNER + INNER * COLUMNS),
        "parameter_bytes": math.log(1 + 4 * (ROWS * INNER + INNER * COLUMNS)),
        "output_rank": 2,
        "output_elements": math.log(ROWS * COLUMNS),
        "largest_elements": math.log(ROWS * COLUMNS),
        "output_size_0": math.log(1 + ROWS),
        "output_size_2": 0,
        "data_mean": math.log(1 + 4 * (ROWS * INNER + INNER * COLUMNS) / 2),
        "summing_max": math.log(1 + 4 * ROWS * COLUMNS),
        "nodes": math.log(3),
        "count_parameter": 2,
        "count_dot": 1,
        "count_add": 0,
        "count_other": 0,
    }
    for row in describe(make_tile(32, 64), make_tile(1, 1), make_tile(100, 200)):
        assert pick(row, expected) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_tile_that_divides_the_output_wastes_nothing() -> None:
    (row,) = describe(make_tile(25, 50))
    assert row["waste"] == pytest.approx(0, abs=1e-6)
    assert row["tiles"] == pytest.approx(math.log(1 + 16))


def test_a_tile_larger_than_the_output_counts_as_the_whole() -> None:
    (row,) = describe(make_tile(128, 256))
    assert pick(row, {"tiles_0": 0, "share_0": 0, "waste": 0}) == pytest.approx(
        {"tiles_0": 0, "share_0": 0, "waste": 0}, abs=1e-6
    )


def test_the_reduction_tile_sets_the_step() -> None:
    whole, cut = describe(make_tile(32, 64), make_tile(32, 64, reduction=20))
    assert whole["step"] == pytest.approx(math.log(INNER))
    assert cut["step"] == pytest.approx(math.log(20))
    assert cut["steps"] == pytest.approx(math.log(16 * 4))


def test_a_convolution_sums_over_the_tile_of_its_kernel() -> None:
    """A 3 x 3 window over 8 features, of which 4 are taken at once."""
    nodes: list[tuple[str, tuple[int, ...]]] = [
        ("parameter", (1, 16, 16, 8)),
        ("parameter", (3, 3, 8, 32)),
        ("convolution", (1, 14, 14, 32)),
    ]
    tiles = np.stack([make_tile(1, 7, 7, 32, kernel=(3, 3, size, 32)) for size in (4, 8)])
    graph = make_kernel(nodes, [(2, 0), (2, 1)], tiles)
    features = graph.node_features.copy()
    features[2, vocabulary.CONVOLUTION_DIMENSIONS] = [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    features[2, vocabulary.WINDOW_SIZE][:2] = 3
    cut, whole = feature_table(dataclasses.replace(graph, node_features=features)).to_dicts()
    assert cut["window_trip"] == cut["step"] == pytest.approx(math.log(3 * 3 * 4))
    assert cut["steps"] - whole["steps"] == pytest.approx(math.log(4 / 2))
    assert whole["step"] == whole["contracted_size"] == pytest.approx(math.log(3 * 3 * 8))


def test_a_dot_has_no_window() -> None:
    (row,) = describe(make_tile(32, 64, kernel=(3, 5)))
    assert row["window_trip"] == 0
    assert row["step"] == pytest.approx(math.log(INNER))


def test_reuse_of_a_tile_by_hand() -> None:
    """Seen as a matrix product: 32 rows x 64 columns x a step of 16."""
    footprint = 32 * 64 + 32 * 16 + 64 * 16
    expected = {
        "footprint": math.log(footprint),
        "intensity": math.log(32 * 64 * 16 / footprint),
        "right_footprint": math.log(64 * 16),
        "left_footprint": math.log(32 * 16),
    }
    (row,) = describe(make_tile(32, 64, reduction=16))
    assert pick(row, expected) == pytest.approx(expected, rel=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_tiles_cover_the_output(seed: int) -> None:
    graph = make_tile_graph(seed)
    sizes = graph.node_features[3, 21:23].astype(int)
    table = feature_table(graph)
    for tile, row in zip(graph.configs, table.iter_rows(named=True), strict=True):
        counts = [-(-int(size) // int(edge)) for size, edge in zip(sizes, tile[8:10], strict=True)]
        covered = math.prod(
            count * int(edge) for count, edge in zip(counts, tile[8:10], strict=True)
        )
        assert row["tiles"] == pytest.approx(math.log(1 + math.prod(counts)), rel=1e-5)
        assert row["waste"] == pytest.approx(math.log(covered / sizes.prod()), abs=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_repaired_padding_changes_nothing(seed: int) -> None:
    graph = make_tile_graph(seed)
    assert feature_table(repair_padding(graph)).equals(feature_table(graph))


def test_an_empty_tile_has_finite_values() -> None:
    (row,) = describe(make_tile())
    assert np.isfinite(list(row.values())).all()


def check_finite(folder: Path) -> None:
    files = [file for file in find_files(folder) if file.collection.kind == "tile"]
    assert files
    columns = feature_table(make_tile_graph()).columns
    for file in files:
        table = feature_table(repair_padding(read_graph(file.path, file.collection)))
        assert table.columns == columns, file.path
        assert set(table.dtypes) == {pl.Float32()}
        assert np.isfinite(table.to_numpy()).all(), file.path


def test_every_kernel_of_the_sample_has_finite_values(sample: Path) -> None:
    check_finite(sample)


def test_every_real_kernel_has_finite_values_even_without_tiles(tpu: Path) -> None:
    check_finite(tpu / "npz" / "tile")


def find_output(nodes: Sequence[tuple[str, tuple[int, ...]]], edges: list[tuple[int, int]]) -> int:
    return output_node(make_kernel(nodes, edges, np.zeros((1, NUM_TILE_FEATURES), np.float32)))


def test_the_output_is_the_tensor_that_nobody_consumes() -> None:
    nodes = [("parameter", (50, 50)), ("slice", (5, 5)), ("tanh", (5, 5))]
    assert find_output(nodes, [(1, 0), (2, 1)]) == 2


def test_of_several_unconsumed_tensors_the_largest_is_the_output() -> None:
    nodes = [("parameter", (9, 9)), ("tanh", (9, 9)), ("reduce", (9,)), ("slice", (3, 3))]
    assert find_output(nodes, [(1, 0), (2, 0), (3, 0)]) == 1


def test_of_a_tuple_the_largest_part_is_the_output() -> None:
    nodes = [("parameter", (9, 9)), ("slice", (3, 3)), ("slice", (4, 4)), ("tuple", ())]
    assert find_output(nodes, [(1, 0), (2, 0), (3, 1), (3, 2)]) == 2


def test_where_the_last_tensors_are_scalars_the_largest_is_the_output() -> None:
    nodes = [("parameter", (3,)), ("parameter", (9, 9)), ("reduce", ()), ("negate", ())]
    assert find_output(nodes, [(2, 0), (2, 1), (3, 2)]) == 1


def test_where_everything_is_a_scalar_the_last_node_is_the_output() -> None:
    assert find_output([("parameter", ()), ("negate", ())], [(1, 0)]) == 1
