"""Rows of a kernel's tiles: values worked out by hand, and the choice of the output tensor."""

import dataclasses
import gc
import math
import weakref
from collections.abc import Callable, Sequence
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
from solution.features.operations import tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.table import feature_table
from solution.features.tile.fusions import inline_fusions
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
    read = [("parameter", (ROWS, INNER)), ("parameter", (INNER, COLUMNS))]
    graph = make_kernel([*read, ("dot", (ROWS, COLUMNS))], [(2, 0), (2, 1)], np.stack(tiles))
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


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_repaired_padding_changes_nothing(seed: int) -> None:
    graph = make_tile_graph(seed)
    assert feature_table(repair_padding(graph)).equals(feature_table(graph))


def test_an_empty_tile_has_finite_values() -> None:
    (row,) = describe(make_tile())
    assert np.isfinite(list(row.values())).all()


@pytest.mark.parametrize("name", ["sample", "tpu"])
def test_real_kernels_have_finite_values(name: str, request: pytest.FixtureRequest) -> None:
    found = find_files(request.getfixturevalue(name))
    files = [file for file in found if file.collection.kind == "tile"]
    assert files
    columns = feature_table(make_tile_graph()).columns
    for file in files[:: 1 if name == "tpu" else 4]:  # kernels for a TPU have no tiles
        table = feature_table(repair_padding(read_graph(file.path, file.collection)))
        assert table.columns == columns, file.path
        assert set(table.dtypes) == {pl.Float32()}
        assert np.isfinite(table.to_numpy()).all(), file.path


def find_output(nodes: Sequence[tuple[str, tuple[int, ...]]], edges: list[tuple[int, int]]) -> int:
    return output_node(make_kernel(nodes, edges, np.zeros((1, NUM_TILE_FEATURES), np.float32)))


def test_the_output_is_the_tensor_that_nobody_consumes() -> None:
    nodes = [("parameter", (50, 50)), ("slice", (5, 5)), ("tanh", (5, 5))]
    assert find_output(nodes, [(1, 0), (2, 1)]) == 2


TILES = np.stack([make_tile(2), make_tile(4), make_tile(8)])
ADD = [("parameter", ()), ("parameter", ()), ("add", ())]  # what the reduce calls


def make_graph(
    nodes: list[tuple[str, tuple[int, ...]]],
    edges: list[tuple[int, int]],
    roots: list[int],
    numbers: dict[int, int],
) -> Graph:
    graph = make_kernel([*ADD, *nodes], [(2, 0), (2, 1), *edges], TILES)
    features = graph.node_features.copy()
    features[[2, *roots], vocabulary.IS_ROOT] = 1
    for node, number in {1: 1, **numbers}.items():
        features[node, vocabulary.PARAMETER_NUMBER] = number
    return dataclasses.replace(graph, node_features=features)


def make_fused() -> Graph:
    """The sums of rows of (x * broadcast(y)), the product in a fusion inside the kernel's."""
    nodes: list[tuple[str, tuple[int, ...]]] = [
        *[("parameter", (8, 16)), ("parameter", (16,)), ("broadcast", (8, 16))],  # 3, 4, 5
        ("multiply", (8, 16)),  # 6: root
        *[("parameter", (8, 16)), ("parameter", (16,)), ("fusion", (8, 16))],  # 7, 8, 9
        ("reduce", (8,)),  # 10: root
        *[("parameter", (8, 16)), ("parameter", (16,)), ("fusion", (8,))],  # 11, 12, 13: root
    ]
    inner = [(5, 4), (6, 3), (6, 5), (9, 6), (9, 7), (9, 8), (10, 2), (10, 9)]
    outer = [(13, 10), (13, 11), (13, 12)]
    return make_graph(nodes, inner + outer, [6, 10, 13], {4: 1, 8: 1, 12: 1})


def make_unfused() -> Graph:
    """The same by hand."""
    nodes: list[tuple[str, tuple[int, ...]]] = [
        *[("broadcast", (8, 16)), ("multiply", (8, 16)), ("reduce", (8,))],  # 3, 4, 5: root
        *[("parameter", (8, 16)), ("parameter", (16,))],  # 6, 7
    ]
    return make_graph(nodes, [(3, 7), (4, 6), (4, 3), (5, 2), (5, 4)], [5], {7: 1})


def test_nested_fusions_become_one_computation() -> None:
    fused, unfused = make_fused(), make_unfused()
    inlined = inline_fusions(fused)
    np.testing.assert_array_equal(inlined.node_opcodes, unfused.node_opcodes)
    np.testing.assert_array_equal(inlined.node_features, unfused.node_features)
    assert sorted(inlined.edges.tolist()) == sorted(unfused.edges.tolist())
    assert feature_table(fused).equals(feature_table(unfused))


@given(st.permutations(range(14)))
@settings(max_examples=25, deadline=None)
def test_the_order_of_nodes_does_not_matter(order: list[int]) -> None:
    graph = make_fused()
    shuffled = dataclasses.replace(
        graph,
        node_features=graph.node_features[order],
        node_opcodes=graph.node_opcodes[order],
        edges=np.argsort(order)[graph.edges],
    )
    assert feature_table(shuffled).equals(feature_table(graph))


def test_operands_of_one_shape_are_told_by_their_numbers() -> None:
    """x is read along its rows, y along its columns."""
    nodes: list[tuple[str, tuple[int, ...]]] = [
        *[("parameter", (8, 8)), ("parameter", (8, 8)), ("transpose", (8, 8)), ("add", (8, 8))],
        *[("parameter", (8, 8)), ("parameter", (8, 8)), ("fusion", (8, 8))],
    ]
    edges = [(5, 4), (6, 3), (6, 5), (9, 6), (9, 7), (9, 8)]
    forth = inline_fusions(make_graph(nodes, edges, [6, 9], {4: 1, 8: 1}))
    back = inline_fusions(make_graph(nodes, edges, [6, 9], {4: 1, 7: 1}))
    read = [graph.edges[graph.edges[:, 0] == 3][0, 1] for graph in (forth, back)]  # transposed
    numbers = [
        graph.node_features[node, vocabulary.PARAMETER_NUMBER]
        for graph, node in zip((forth, back), read, strict=True)
    ]
    assert numbers == [1, 1]
    assert read[0] != read[1]


def test_an_operand_that_is_read_twice_is_one_tensor() -> None:
    nodes: list[tuple[str, tuple[int, ...]]] = [
        *[("parameter", (8, 8)), ("parameter", (8, 8)), ("multiply", (8, 8))],
        *[("parameter", (8, 8)), ("fusion", (8, 8))],
    ]
    edges = [(5, 3), (5, 4), (7, 5), (7, 6)]
    inlined = inline_fusions(make_graph(nodes, edges, [5, 7], {4: 1}))
    assert inlined.num_nodes == len(ADD) + 2
    assert inlined.edges[inlined.edges[:, 0] == 3].tolist() == [[3, 4], [3, 4]]


@pytest.mark.parametrize("make", [make_fused, make_unfused])
def test_graphs_are_not_kept_in_memory(make: Callable[[], Graph]) -> None:
    graph = make()
    inline_fusions(graph)
    left = weakref.ref(graph)
    del graph
    gc.collect()
    assert left() is None


def test_real_kernels_read_each_parameter_once(tpu: Path) -> None:
    found = 0
    for file in find_files(tpu):
        if file.collection.kind != "tile":
            continue
        graph = repair_padding(read_graph(file.path, file.collection))
        inlined = inline_fusions(graph)
        assert not (inlined.node_opcodes == OPCODE_IDS["fusion"]).any()
        if inlined is not graph:
            found += 1
            kernel = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["fusion"])[-1]
            operands = graph.edges[graph.edges[:, 0] == kernel][:, 1]
            assert count_parameters(inlined) == count_parameters(graph, operands)
    assert found > 5


def count_parameters(graph: Graph, nodes: np.ndarray | None = None) -> int:
    """Parameters that are no scalars, among `nodes`."""
    marked = (graph.node_opcodes == OPCODE_IDS["parameter"]) & (tensor_ranks(graph) > 0)
    return int((marked if nodes is None else marked[nodes]).sum())
