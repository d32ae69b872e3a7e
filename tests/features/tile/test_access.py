"""What a tile touches of every tensor, counted on small kernels by hand and by brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.tile.access import find_walks
from solution.features.tile.cache import (
    Cache,
    count_blocks,
    distinct_sets,
)
from solution.features.tile.loops import count_passes, innermost_loop
from solution.features.tile.tiling import REDUCTION, WINDOW, find_tiling
from solution.features.tile.traffic import touch
from tests.features.tile.test_tile_table import make_kernel, make_tile

MATMUL = [
    ("parameter", (100, 64)),
    ("parameter", (64, 200)),
    ("dot", (100, 200)),
    ("parameter", (200,)),
    ("broadcast", (100, 200)),
    ("add", (100, 200)),
]
MATMUL_EDGES = [(2, 0), (2, 1), (4, 3), (5, 2), (5, 4)]


def with_dimensions(graph: Graph, node: int, dimensions: tuple[int, ...]) -> Graph:
    features = graph.node_features.copy()
    features[node, vocabulary.DIMENSIONS] = -1
    features[node, vocabulary.DIMENSIONS][: len(dimensions)] = dimensions
    return make_kernel_like(graph, features)


def make_kernel_like(graph: Graph, features: np.ndarray) -> Graph:
    import dataclasses

    return dataclasses.replace(graph, node_features=features)


def matmul(*tiles: np.ndarray) -> Graph:
    return with_dimensions(make_kernel(MATMUL, MATMUL_EDGES, np.stack(tiles)), 4, (1,))


def boxes(graph: Graph) -> dict[int, list[float]]:
    tiling = find_tiling(graph)
    return {walk.node: walk.box(tiling.tiles)[0].tolist() for walk in find_walks(graph)}


def test_a_matrix_product_reads_rows_by_step_and_step_by_columns() -> None:
    graph = matmul(make_tile(32, 40, reduction=16))
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


def test_a_sum_along_contiguous_memory_runs_innermost() -> None:
    nodes = [("parameter", (256, 4096)), ("constant", ()), ("reduce", (256,))]
    tile = make_tile(64, reduction=1000)
    graph = with_dimensions(make_kernel(nodes, [(2, 0), (2, 1)], tile[None]), 2, (1,))
    assert boxes(graph)[0] == [64, 1000]
    assert innermost_loop(graph) == REDUCTION


def test_a_convolution_reads_its_window_beyond_the_tile() -> None:
    nodes = [
        ("parameter", (2, 30, 34, 16)),
        ("parameter", (3, 5, 16, 8)),
        ("convolution", (2, 28, 30, 8)),
    ]
    tile = make_tile(1, 7, 10, 8, kernel=(3, 2, 4, 8))
    graph = make_kernel(nodes, [(2, 0), (2, 1)], tile[None])
    features = graph.node_features.copy()
    features[2, vocabulary.WINDOW_SIZE][:2] = (3, 5)
    features[2, vocabulary.CONVOLUTION_INPUT_FEATURE] = 3
    features[2, vocabulary.CONVOLUTION_INPUT_SPATIAL] = (1, 2, -1, -1)
    features[2, vocabulary.CONVOLUTION_KERNEL_INPUT] = 2
    features[2, vocabulary.CONVOLUTION_KERNEL_OUTPUT] = 3
    features[2, vocabulary.CONVOLUTION_KERNEL_SPATIAL] = (0, 1, -1, -1)
    features[2, vocabulary.CONVOLUTION_OUTPUT_FEATURE] = 3
    graph = make_kernel_like(graph, features)
    assert boxes(graph) == {2: [1, 7, 10, 8], 0: [1, 9, 11, 4], 1: [3, 2, 4, 8]}
    tiling = find_tiling(graph)
    assert tiling.extents[WINDOW : WINDOW + 4].tolist() == [3, 5, 16, 1]
    assert tiling.counts.prod() == 2 * 4 * 3 * 1 * 1 * 3 * 4


def test_register_tiles_are_turned_into_elements() -> None:
    """Bounds that just cover (32, 4096) in tiles of 8 x 128 count those; 4 x 32 of them."""
    nodes = [("parameter", (32, 4096)), ("tanh", (32, 4096))]
    tiles = np.stack([make_tile(4, 32), make_tile(1, 2)])
    tiling = find_tiling(make_kernel(nodes, [(1, 0)], tiles))
    assert tiling.in_registers
    assert tiling.tiles[:, :2].tolist() == [[32, 4096], [8, 256]]


def test_sixteen_sublanes_hold_two_byte_elements() -> None:
    nodes = [("parameter", (32, 1024)), ("tanh", (32, 1024))]
    graph = make_kernel(nodes, [(1, 0)], np.stack([make_tile(2, 8), make_tile(1, 8)]))
    features = graph.node_features.copy()
    features[:, vocabulary.ELEMENT_TYPE] = 0
    features[:, vocabulary.ELEMENT_TYPE.start + 13] = 1  # bfloat16
    tiling = find_tiling(make_kernel_like(graph, features))
    assert tiling.in_registers
    assert tiling.tiles[:, 0].tolist() == [32, 16]


def test_a_register_holds_1024_elements_of_one_dimension() -> None:
    nodes = [("parameter", (4096,)), ("tanh", (4096,))]
    tiling = find_tiling(make_kernel(nodes, [(1, 0)], np.stack([make_tile(4), make_tile(1)])))
    assert tiling.in_registers
    assert tiling.tiles[:, 0].tolist() == [4096, 1024]


def test_where_a_kernel_ends_in_a_reduce_the_reduced_tensor_is_cut() -> None:
    nodes = [("parameter", (32, 1000)), ("constant", ()), ("reduce", (32,))]
    tiles = np.stack([make_tile(4, 8), make_tile(1, 1)])
    tiling = find_tiling(make_kernel(nodes, [(2, 0), (2, 1)], tiles))
    assert (tiling.node, tiling.in_registers) == (0, True)


def slow_blocks(sizes: list[int], box: list[int], block: int) -> int:
    """Blocks of `block` bytes that a corner box of a float32 tensor touches, element by element."""
    strides = [4 * math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    places = itertools.product(*(range(steps) for steps in box))
    return len({sum(s * i for s, i in zip(strides, p, strict=True)) // block for p in places})


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


def test_a_power_of_two_stride_leaves_few_sets() -> None:
    cache = Cache(block=64, ways=8, sets=64)
    assert distinct_sets(4096, cache) == 1
    assert distinct_sets(2048, cache) == 2
    assert distinct_sets(4096 + 64, cache) == 64
    assert distinct_sets(4, cache) == 64


def test_a_tile_that_covers_everything_is_read_once() -> None:
    graph = matmul(make_tile(100, 200), make_tile(10, 20))
    tiling = find_tiling(graph)
    for walk in find_walks(graph):
        touched = touch(walk, tiling)
        assert touched.lines[0] == pytest.approx(touched.least)
        assert touched.trips[0] == 1
    left = touch(find_walks(graph)[1], tiling)
    assert left.trips[1] == 10  # ten rows of tiles; it stays while the columns go round


def test_only_operations_on_whole_tensors_pass_over_a_tile() -> None:
    assert count_passes(matmul(make_tile(32, 40))) == 2  # the product and the addition
