"""Loops of whole programs: against the elements of each tensor, one after the other in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.padding import repair_padding
from solution.features.propagation.library import NOTHING, join_library
from solution.features.propagation.loops import ENOUGH, Loops, find_loops
from solution.features.propagation.places import find_places
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import state_tables
from solution.features.propagation.states import FIRST
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, addresses, unpack
from tests.made.graphs import make_nodes

Shape = tuple[int, ...]


def in_memory(shape: Shape, layout: Layout) -> np.ndarray:
    """The positions (elements, rank) of a tensor's elements, in the order of their addresses."""
    order = np.argsort(addresses(shape, layout).ravel())
    return np.array(list(np.ndindex(shape))).reshape(len(order), len(shape))[order]


def count_alike(positions: np.ndarray) -> int:
    """How many elements from the first on are at the same positions (elements, dimensions)."""
    differs = (positions != positions[0]).any(axis=1)
    return int(np.argmax(differs)) if differs.any() else len(positions)


def sum_slowly(shape: Shape, layout: Layout, summed: list[int]) -> tuple[bool, bool, int]:
    """Whether anything is summed, whether its elements are contiguous, and the run."""
    positions = in_memory(shape, layout)
    kept = [axis for axis in range(len(shape)) if axis not in summed]
    alike = [count_alike(positions[:, axes]) for axes in (kept, summed)]
    sums = bool(np.prod([shape[axis] for axis in summed]) > 1)
    contiguous = sums and alike[0] > 1
    return sums, contiguous, alike[0] if contiguous else alike[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_run_is_what_a_reduction_finds_in_memory(seed: int) -> None:
    graph = draw_graph(seed)
    propagation = Propagation(graph)
    own, numbered = propagation.instructions, propagation.number()
    places = find_places(own, numbered.place)
    by_itself = np.full(len(numbered.place), NOTHING)
    loops = find_loops(graph, own, places, numbered.layouts, by_itself)
    for state, place in enumerate(numbered.place.tolist()):
        is_reduce = (
            place < own.count
            and own.is_programs[place]
            and own.node[place] >= 0
            and graph.node_opcodes[own.node[place]] == OPCODE_IDS["reduce"]
        )
        if not is_reduce:
            assert not loops.sums[state]
            continue
        read, number = places.read[state, 0], int(numbered.layouts[state, FIRST])
        shape = tuple(own.sizes[read, : own.rank[read]].tolist())
        if number >= 0:
            summed = [axis for axis in own.dimensions[place].tolist() if axis >= 0]
            sums, contiguous, run = sum_slowly(shape, unpack(number, len(shape)), summed)
            assert (bool(loops.sums[state]), bool(loops.contiguous[state])) == (sums, contiguous)
            if sums:
                assert loops.run[state] == pytest.approx(np.log2(run))


def softmax(rows: int, columns: int, heads: int, opcode: str = "exponential") -> Graph:
    """A maximum over the columns, taken off, and what becomes of it in two layouts."""
    shape, flat = (rows, columns, heads), (rows * columns * heads,)
    shapes: list[Shape] = [shape, (), (rows, heads), shape, shape, shape, flat]
    opcodes = ["parameter", "constant", "reduce", "broadcast", "subtract", opcode, "reshape"]
    edges = [(2, 0), (2, 1), (3, 2), (4, 0), (4, 3), (5, 4), (6, 5)]
    features = make_nodes(shapes)
    features[2, vocabulary.DIMENSIONS][0] = 1
    features[3, vocabulary.DIMENSIONS][:2] = 0, 2
    features[6, vocabulary.IS_ROOT] = 1
    layouts = np.full((2, 1, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[0, 0, 6:9], layouts[1, 0, 6:9] = (2, 1, 0), (1, 0, 2)
    return make(features, opcodes, edges, [6], layouts)


def make(
    features: np.ndarray,
    opcodes: list[str],
    edges: list[tuple[int, int]],
    configurable: list[int],
    layouts: np.ndarray,
) -> Graph:
    return repair_padding(
        Graph(
            name="made",
            collection=collection("layout:xla:random"),
            node_features=features,
            node_opcodes=np.array([OPCODE_IDS[name] for name in opcodes], np.uint8),
            edges=np.array(edges, np.int64),
            configurable=np.array(configurable, np.int64),
            configs=encode(layouts),
            runtimes=None,
        )
    )


def loops_at(graph: Graph, node: int) -> tuple[Loops, np.ndarray]:
    """Of the node's instruction: the loops of all states, and its state in each configuration."""
    propagation = Propagation(graph)
    own, numbered = propagation.instructions, propagation.number()
    place = int(np.flatnonzero((own.node == node) & own.is_programs)[0])
    joins = np.full(len(numbered.place), NOTHING)  # of these graphs, one for each state
    joins[numbered.numbers[:, : own.count]] = join_library(propagation, numbered)
    places = find_places(own, numbered.place)
    loops = find_loops(graph, own, places, numbered.layouts, joins)
    return loops, numbered.numbers[:, place]


def test_the_library_runs_along_the_contiguous_dimension() -> None:
    """Row-major by its two heads, which is short; in another layout not at all."""
    for heads, expected in ((2, 1 / 2 - 1 / ENOUGH), (ENOUGH, 0.0)):
        loops, (row_major, other) = loops_at(softmax(64, 48, heads), 4)
        assert loops.at_once[row_major]
        assert loops.run[row_major] == np.log2(heads)
        assert loops.short[row_major] == pytest.approx(expected)
        assert not loops.at_once[other]
        assert loops.short[other] == 0


def test_only_what_the_library_does_beside_a_reduction() -> None:
    for opcode, expected in (("exponential", True), ("select", False)):
        loops, (row_major, _) = loops_at(softmax(64, 48, 2, opcode), 5)
        assert loops.at_once[row_major] == expected


@pytest.mark.parametrize("window", [2, 5])
def test_small_windows_are_slow_along_the_contiguous_dimension(window: int) -> None:
    """Windows over rows of eight channels, read by channels or along the rows."""
    features = make_nodes([(24, 8), (), (12, 8), (96,)])
    features[2, vocabulary.WINDOW_SIZE][:2] = window, 1
    features[3, vocabulary.IS_ROOT] = 1
    layouts = np.full((2, 1, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[0, 0, 6:8], layouts[1, 0, 6:8] = (1, 0), (0, 1)
    opcodes = ["parameter", "constant", "reduce-window", "reshape"]
    graph = make(features, opcodes, [(2, 0), (2, 1), (3, 2)], [3], layouts)
    loops, states = loops_at(graph, 2)
    assert loops.sums[states].all()
    assert loops.contiguous[states].tolist() == [False, True]
    np.testing.assert_allclose(loops.run[states], np.log2([8, window]))
    expected = [1 / 8 - 1 / ENOUGH, 1 / 2 - 1 / ENOUGH] if window == 2 else [0, 0]
    np.testing.assert_allclose(loops.short[states], expected)
    assert state_tables("cpu")(graph).short_loops.any() == (window == 2)
    assert not state_tables("tpu")(graph).short_loops.any()  # nobody has timed one


def test_short_loops_and_what_is_made_at_once_are_bytes_beside_all_bytes() -> None:
    graph = softmax(64, 48, 2)
    table, (first, _) = state_tables("cpu")(graph), graph.distinct.first
    states = table.numbers[first, : table.instructions]
    by_node = np.bincount(table.node[states], table.short_loops[states], graph.num_nodes)
    large, small, one = 64 * 48 * 2 * 4, 64 * 2 * 4, 4
    share = (1 / 2 - 1 / ENOUGH) * large / (5 * large + small + one)
    # The reshape works on nothing, nor does a request.
    np.testing.assert_allclose(by_node, [0, 0, share, share, share, share, 0], rtol=1e-6)
    made = np.bincount(table.node[states], table.at_once[states], graph.num_nodes)
    share = large / (5 * large + small + one)
    # What is handed on and the reduction itself do not count.
    np.testing.assert_allclose(made, [0, 0, 0, 0, share, share, 0], rtol=1e-6)
