"""Rows of a kernel's tiles, and what they touch: by hand, by brute force, and of real kernels."""

import dataclasses
import gc
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.collection import TILE, collection
from solution.domain.graph import Graph
from solution.domain.metrics import top_k_score
from solution.domain.vocabulary import MAX_RANK, NUM_TILE_FEATURES, OPCODE_IDS
from solution.features.operations import tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.table import feature_table
from solution.features.tile.access import Walk, find_walks
from solution.features.tile.cache import (
    Cache,
    count_blocks,
    count_blocks_of,
    count_misses,
    make_nest,
    reach,
)
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.loops import find_nest, innermost_loop
from solution.features.tile.tiling import REDUCTION, WINDOW, Tiling, find_tiling, output_node
from solution.features.tile.traffic import CACHES, MISS, NUMBERS, START, VECTOR, estimate_cycles
from tests.made.graphs import make_nodes, make_tile_graph

Nodes = Sequence[tuple[str, tuple[int, ...]]]  # (opcode, shape)
Edges = list[tuple[int, int]]


def make_kernel(nodes: Nodes, edges: Edges, tiles: np.ndarray) -> Graph:
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


def describe(tile: np.ndarray) -> dict[str, float]:
    """The row of one matrix product (100, 64) x (64, 200)."""
    nodes = [("parameter", (100, 64)), ("parameter", (64, 200)), ("dot", (100, 200))]
    (row,) = feature_table(make_kernel(nodes, [(2, 0), (2, 1)], tile[None])).to_dicts()
    return row


def test_a_tile_of_a_matrix_product_by_hand() -> None:
    """Tiles of 32 x 64: 4 x 4 of them cover 128 x 256."""
    expected = {
        **dict.fromkeys(("tiles_0", "tiles_1", "minor_tiles_0", "minor_tiles_1"), math.log(4)),
        **dict.fromkeys(("tiles_2", "share_2", "minor_2", "minor_tiles_2"), 0),
        "tiles": math.log(1 + 16),
        "share_0": math.log(32 / 100),
        "share_1": math.log(64 / 200),
        "waste": math.log(128 * 256 / (100 * 200)),
        "minor_0": math.log(1 + 64),
        "minor_1": math.log(1 + 32),
        "tile_volume": math.log(1 + 32 * 64),
        "output_0": math.log(1 + 32),
        "output_sum": math.log(1 + 96),
        "output_product": math.log(1 + 2048),
    }
    row = describe(make_tile(32, 64))
    found = {name: row[name] for name in expected}
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_convolution_sums_over_the_tile_of_its_kernel() -> None:
    """A 3 x 3 window over 8 features, of which 4 are taken at once."""
    shapes = ((1, 16, 16, 8), (3, 3, 8, 32), (1, 14, 14, 32))
    nodes = list(zip(("parameter", "parameter", "convolution"), shapes, strict=True))
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
    assert np.isfinite(list(describe(make_tile()).values())).all()


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


def test_the_output_is_the_tensor_that_nobody_consumes() -> None:
    nodes = [("parameter", (50, 50)), ("slice", (5, 5)), ("tanh", (5, 5))]
    assert output_node(make_kernel(nodes, [(1, 0), (2, 1)], make_tile()[None])) == 2


TILES = np.stack([make_tile(2), make_tile(4), make_tile(8)])
ADD = [("parameter", ()), ("parameter", ()), ("add", ())]  # what the reduce calls


def make_graph(nodes: Nodes, edges: Edges, roots: list[int], numbers: dict[int, int]) -> Graph:
    graph = make_kernel([*ADD, *nodes], [(2, 0), (2, 1), *edges], TILES)
    features = graph.node_features.copy()
    features[[2, *roots], vocabulary.IS_ROOT] = 1
    for node, number in {1: 1, **numbers}.items():
        features[node, vocabulary.PARAMETER_NUMBER] = number
    return dataclasses.replace(graph, node_features=features)


def make_fused() -> Graph:
    """The sums of rows of (x * broadcast(y)), the product in a fusion inside the kernel's."""
    nodes: Nodes = [
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
    nodes: Nodes = [
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
    nodes: Nodes = [
        *[("parameter", (8, 8)), ("parameter", (8, 8)), ("transpose", (8, 8)), ("add", (8, 8))],
        *[("parameter", (8, 8)), ("parameter", (8, 8)), ("fusion", (8, 8))],
    ]
    edges = [(5, 4), (6, 3), (6, 5), (9, 6), (9, 7), (9, 8)]
    forth = inline_fusions(make_graph(nodes, edges, [6, 9], {4: 1, 8: 1}))
    back = inline_fusions(make_graph(nodes, edges, [6, 9], {4: 1, 7: 1}))
    read = [graph.edges[graph.edges[:, 0] == 3][0, 1] for graph in (forth, back)]  # transposed
    for graph, node in zip((forth, back), read, strict=True):
        assert graph.node_features[node, vocabulary.PARAMETER_NUMBER] == 1
    assert read[0] != read[1]


def test_an_operand_that_is_read_twice_is_one_tensor() -> None:
    nodes: Nodes = [
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


MATMUL = [
    ("parameter", (100, 64)), ("parameter", (64, 200)), ("dot", (100, 200)), ("parameter", (200,)),
    ("broadcast", (100, 200)), ("add", (100, 200)),
]  # fmt: skip
MATMUL_EDGES = [(2, 0), (2, 1), (4, 3), (5, 2), (5, 4)]


def with_dimensions(graph: Graph, node: int, dimensions: tuple[int, ...]) -> Graph:
    features = graph.node_features.copy()
    features[node, vocabulary.DIMENSIONS] = -1
    features[node, vocabulary.DIMENSIONS][: len(dimensions)] = dimensions
    return dataclasses.replace(graph, node_features=features)


def boxes(graph: Graph) -> dict[int, list[float]]:
    tiling = find_tiling(graph)
    return {walk.node: walk.box(tiling.tiles)[0].tolist() for walk in find_walks(graph)}


def test_a_matrix_product_reads_rows_by_step_and_step_by_columns() -> None:
    tile = make_tile(32, 40, reduction=16)
    graph = with_dimensions(make_kernel(MATMUL, MATMUL_EDGES, tile[None]), 4, (1,))
    assert boxes(graph) == {5: [32, 40], 0: [32, 16], 1: [16, 40], 3: [40]}
    assert find_tiling(graph).extents[REDUCTION] == 64


def test_a_transpose_reads_across_what_it_writes() -> None:
    nodes = [("parameter", (300, 500)), ("transpose", (500, 300))]
    graph = with_dimensions(
        make_kernel(nodes, [(1, 0)], np.stack([make_tile(50, 7), make_tile(500, 300)])), 1, (1, 0)
    )
    assert boxes(graph)[0] == [7, 50]
    read = find_walks(graph)[1]
    assert read.inner_stride(1) == 500 * 4


def test_a_reduce_reads_the_step_of_its_sum() -> None:
    nodes = [("parameter", (4096, 256)), ("constant", ()), ("reduce", (256,))]
    tile = make_tile(64, reduction=1000)
    graph = with_dimensions(make_kernel(nodes, [(2, 0), (2, 1)], tile[None]), 2, (0,))
    assert boxes(graph)[0] == [1000, 64]
    assert innermost_loop(graph) == 0


def test_a_convolution_reads_its_window_beyond_the_tile() -> None:
    shapes = ((2, 30, 34, 16), (3, 5, 16, 8), (2, 28, 30, 8))
    nodes = list(zip(("parameter", "parameter", "convolution"), shapes, strict=True))
    tile = make_tile(1, 7, 10, 8, kernel=(3, 2, 4, 8))
    graph = make_kernel(nodes, [(2, 0), (2, 1)], tile[None])
    features = graph.node_features.copy()
    features[2, vocabulary.CONVOLUTION_DIMENSIONS] = [0, 3, 1, 2, -1, -1, 2, 3, 0, 1, -1, -1, 0, 3]
    features[2, vocabulary.WINDOW_SIZE][:2] = (3, 5)
    graph = dataclasses.replace(graph, node_features=features)
    assert boxes(graph) == {2: [1, 7, 10, 8], 0: [1, 9, 11, 4], 1: [3, 2, 4, 8]}
    tiling = find_tiling(graph)
    assert tiling.extents[WINDOW : WINDOW + 4].tolist() == [3, 5, 16, 1]
    assert tiling.counts.prod() == 2 * 4 * 3 * 1 * 1 * 3 * 4


def slow_blocks(sizes: list[int], box: list[int], block: int) -> int:
    """Blocks of `block` bytes that a corner box of a float32 tensor touches, element by element."""
    strides = [4 * math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    indices = itertools.product(*(range(steps) for steps in box))
    return len({sum(s * i for s, i in zip(strides, index, strict=True)) // block
                for index in indices})  # fmt: skip


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_blocks_are_about_those_that_are_touched(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    box = [data.draw(st.integers(1, size)) for size in sizes]
    nodes = [("parameter", tuple(sizes)), ("tanh", tuple(sizes))]
    walk = find_walks(make_kernel(nodes, [(1, 0)], make_tile(*sizes)[None]))[1]
    (found,) = count_blocks(walk, np.array([box], float), 64)
    exact = slow_blocks(sizes, box, 64)
    runs = math.prod(box[:-1])
    assert 0.4 * exact - 1 <= found <= exact + runs  # runs may share a line, or straddle two


SIZES = st.integers(1, 300)


class Level(NamedTuple):
    """The loops so far, from the innermost outwards."""

    reached: np.ndarray  # (loops,) what a whole tile goes through
    mean: np.ndarray  # (loops,) the same, on average over all tiles
    executions: float


def slow_levels(tiling: Tiling, config: int, inner: int) -> list[Level]:
    minor = tiling.rank - 1
    loops = [minor, REDUCTION, *reversed(range(WINDOW, len(tiling.extents)))]
    loops += [loop for loop in reversed(range(MAX_RANK)) if loop != minor]
    inside = [inner, *(loop for loop in loops if loop != inner)]
    reached, mean = np.ones(len(tiling.extents)), np.ones(len(tiling.extents))
    tile, levels = tiling.tiles[config], []
    for order, size, average in (
        (inside, tile, tiling.extents / tiling.counts[config]),
        (loops, tiling.extents, tiling.extents),
    ):
        for loop in order:
            if tiling.extents[loop] > 1:
                reached[loop], mean[loop] = size[loop], average[loop]
                executions = tiling.extents.prod() / mean.prod()
                levels.append(Level(reached.copy(), mean.copy(), executions))
    return levels


def slow_blocks_cache(walk: Walk, box: np.ndarray, mean: np.ndarray, block: int) -> float:
    """Blocks of an average box, whose places begin at multiples of what whole ones take."""
    count = 1.0
    for dimension, stride in enumerate(walk.strides):
        if stride >= block:
            count *= mean[dimension]
            continue
        steps = [block, *walk.strides[:dimension]]  # where rows, planes, ... begin
        if box[dimension] < walk.sizes[dimension]:
            steps.append(box[dimension] * stride)
        begin = max(stride, math.gcd(*(round(step) for step in steps)))
        count *= max(1.0, 1 + (mean[dimension] * stride - begin) / block)
    return count


def slow_occupied(walk: Walk, box: np.ndarray, blocks: float, cache: Cache) -> float:
    """Blocks that a box keeps busy where its strides leave sets of the cache unused."""
    reached = 1.0
    for steps, stride in zip(box, walk.strides, strict=True):
        if stride < cache.block:
            reached *= 1 + (steps - 1) * stride / cache.block
        elif stride % cache.block:
            reached *= min(steps, cache.sets)
        else:
            reached *= min(steps, cache.sets / np.gcd(cache.sets, int(stride // cache.block)))
    used = min(max(reached, 1), cache.sets)
    return max(blocks, blocks / used * cache.sets) if blocks > used else blocks


def slow_misses(walks: list[Walk], levels: list[Level], cache: Cache) -> tuple[float, float]:
    """The first level whose data do not fit brings its blocks anew each time that it is run.

    And the same, where each level keeps as much of what it touches as there is room for.
    """
    brought, room = [], []
    for level in levels:
        boxes = [walk.box(level.reached[None])[0] for walk in walks]
        means = [walk.box(level.mean[None])[0] for walk in walks]
        whole = [
            slow_blocks_cache(w, box, box, cache.block) for w, box in zip(walks, boxes, strict=True)
        ]
        average = [
            slow_blocks_cache(w, *both, cache.block)
            for w, *both in zip(walks, boxes, means, strict=True)
        ]
        busy = zip(walks, boxes, whole, strict=True)
        occupied = sum(slow_occupied(*each, cache) for each in busy)
        brought.append(sum(average) * level.executions)
        room.append(min(1.0, cache.blocks / occupied))
    if not levels:
        return 1.0, 1.0
    fit = [level for level, free in enumerate(room) if free < 1]
    gradual, kept, least = brought[0], 1.0, brought[0]
    for free, next_brought in zip(room, brought[1:], strict=False):
        kept = min(kept, free)
        gradual -= kept * max(0.0, least - next_brought)
        least = min(least, next_brought)
    return brought[fit[0] if fit else -1], gradual


@given(SIZES, SIZES, SIZES, st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_misses_are_those_of_a_walk_through_the_levels(
    rows: int, inner: int, columns: int, tiles: list[tuple[int, int, int]]
) -> None:
    read = [("parameter", (rows, inner)), ("parameter", (inner, columns))]
    nodes = [*read, ("dot", (rows, columns))]
    given_tiles = np.zeros((len(tiles), NUM_TILE_FEATURES), np.float32)
    for row, (high, wide, step) in zip(given_tiles, tiles, strict=True):
        row[8:10] = min(high, rows), min(wide, columns)
        row[16] = min(step, inner)
    graph = make_kernel(nodes, [(2, 0), (2, 1)], given_tiles)
    tiling, walks = find_tiling(graph), find_walks(graph)
    loop = innermost_loop(graph)
    nest = make_nest(tiling, loop)
    for cache in CACHES.values():
        reached = reach(walks, nest)
        blocks = [count_blocks_of(each, cache.block) for each in reached]
        found = count_misses(reached, blocks, nest, cache)
        for config in range(len(tiles)):
            levels = slow_levels(tiling, config, loop)
            assert len(levels) == len(nest.levels)
            recent, gradual = slow_misses(walks, levels, cache)
            np.testing.assert_allclose(found.least_recent[config], recent, rtol=1e-9)
            np.testing.assert_allclose(found.gradual[config], gradual, rtol=1e-9)
            assert found.gradual[config] > 0


def test_cycles_of_a_product_by_hand() -> None:
    """Tiles of 32 x 64 of a product (100, 64) x (64, 200), whose columns are a vector's."""
    nodes = [("parameter", (100, 64)), ("parameter", (64, 200)), ("dot", (100, 200))]
    graph = make_kernel(nodes, [(2, 0), (2, 1)], make_tile(32, 64)[None])
    counts = {"first_level": 700.0, "second_level": 0.0, "page_table": 1.0}
    misses = {name: np.array([count]) for name, count in counts.items()}
    iterations = 100 * 64 * 200
    vectors = 100 * 64 * (3 * 64 // NUMBERS + 8)  # the last 8 columns are no whole vector
    starts = 100 * 64 * 4 + 100 * 4  # of the columns, of the sum around them
    waits = MISS["first_level"] * 700 + MISS["page_table"]
    expected = (VECTOR * vectors + START * starts + waits) / iterations
    assert estimate_cycles(graph, find_nest(graph), misses)[0] == pytest.approx(expected)


def test_fewest_cycles_first_names_fast_tiles_before_anything_is_learned() -> None:
    files = [file for file in find_files(SAMPLE) if file.collection.name == TILE[0]]
    graphs = [read_graph(file.path, file.collection) for file in files[::2]]
    scores = [
        top_k_score(feature_table(graph)["cycles"].to_numpy(), np.asarray(graph.runtimes), 5)
        for graph in graphs
        if graph.runtimes is not None
    ]
    assert len(scores) > 50
    assert np.mean(scores) > 0.93
