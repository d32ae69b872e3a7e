"""What dots sum stands where convolutions say it, and in tables."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.contractions import (
    FEATURES,
    contraction_rows,
    contractions,
    mark_contractions,
)
from solution.features.einsum import Einsum, count_terms, label_dot
from solution.features.operations import find_operands, tensor_ranks
from solution.features.preparation import Preparation, keep_neighbourhood, merge_rest
from solution.programs.hlo.nodes import read_nodes
from tests.made import modules
from tests.made.graphs import make_layout_graph, make_nodes


def test_a_dot_says_it_where_a_convolution_does() -> None:
    graph = Preparation(None)(make_layout_graph(5))  # dot of x and w: (rows, inner), (inner, ...)
    assert contractions(graph)[2, :, 0].tolist() == [1, 0]
    marked = mark_contractions(graph)
    assert marked.node_features[2, vocabulary.CONVOLUTION_INPUT_FEATURE] == 1
    assert marked.node_features[2, vocabulary.CONVOLUTION_KERNEL_INPUT] == 0
    changed = (marked.node_features != graph.node_features).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [2]
    assert (contractions(graph)[[0, 1, 3, 4, 5, 6, 7]] == -1).all()
    again = Preparation(None, contractions=True)(marked)
    np.testing.assert_array_equal(again.node_features, marked.node_features)


def test_tables_say_whether_what_is_summed_is_contiguous() -> None:
    """x (rows, inner) is summed along 1, w along 0; both are row-major where nothing is said."""
    graph = Preparation(None)(make_layout_graph(5))
    tensor = graph.layouts.expand()[:, 0]  # of the dot
    rows = contraction_rows(graph)[graph.distinct.inverse]
    assert [feature.name for feature in FEATURES] == [
        "input_sums_minor", "input_sums_outer", "kernel_sums_minor", "kernel_sums_outer",
    ]  # fmt: skip
    for row, slots in zip(rows, tensor, strict=True):
        read = slots[6] if slots[6] >= 0 else 1
        weights = slots[12] if slots[12] >= 0 else 1
        assert row.tolist() == [read == 1, read != 1, weights == 0, weights != 0]


def test_a_module_says_it_itself() -> None:
    """x . x of 16 by 16, both summed along 0: shapes would say 1 and 0."""
    graph = read_graph_of(modules.dot([0], [0], [], []))
    assert contractions(graph)[1, :, 0].tolist() == [0, 0]
    assert contractions(dataclasses.replace(graph, summed=None))[1, :, 0].tolist() == [1, 0]
    marked = mark_contractions(graph)
    assert marked.node_features[1, vocabulary.CONVOLUTION_INPUT_FEATURE] == 0
    assert contractions(graph)[0].max() == -1
    for prune in (keep_neighbourhood, merge_rest):
        kept = prune(graph, 1)
        (dot,) = np.flatnonzero(kept.node_opcodes == OPCODE_IDS["dot"])
        assert contractions(kept)[dot, :, 0].tolist() == [0, 0]
        assert len(kept.summed) == kept.num_nodes


def read_graph_of(numbers: object) -> Graph:
    """x (16, 16) -> dot(x, x) -> exp -> exp -> exp."""
    square = modules.shape(16, 16)
    nodes = [
        modules.node(1, "parameter", square),
        modules.node(2, "dot", square, (1, 1), dot=numbers),
        *(modules.node(k, "exponential", square, (k - 1,)) for k in (3, 4, 5)),
    ]
    found = read_nodes(modules.module(("main", 5, nodes)))
    return Graph(
        name="square",
        collection=collection("layout:xla:random"),
        node_features=found.features,
        node_opcodes=found.opcodes,
        edges=found.edges,
        configurable=np.array([1]),
        configs=encode(np.full((1, 1, 18), -1, np.int8)),
        runtimes=None,
        summed=found.summed,
    )


def test_numbers_that_are_no_dimensions_are_left_out() -> None:
    graph = read_graph_of(modules.dot([7, -3, 1], [10**12, 0], [], []))
    assert contractions(graph)[1].tolist() == [[1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]


def divide(sizes: list[int], counts: list[int]) -> Iterator[list[int]]:
    """So many of the sizes, so many of the next ones, ..."""
    rest = iter(sizes)
    return (list(islice(rest, count)) for count in counts)


@pytest.mark.parametrize(
    ("left", "right", "output", "expected"),
    [
        ((3, 4), (4, 5), (3, 5), ((1,), (0,))),
        ((4, 3), (4, 5), (3, 5), ((0,), (0,))),
        ((3, 4), (5, 4), (3, 5), ((1,), (1,))),
        ((2, 3, 4), (2, 4, 5), (2, 3, 5), ((2,), (1,))),  # a batch of 2
        ((2, 3, 4, 6), (4, 6, 5), (2, 3, 5), ((2, 3), (0, 1))),
        ((7, 7), (7, 7), (7, 7), ((1,), (0,))),  # all fit: as it is written mostly
        ((3,), (5,), (3, 5), ((), ())),
        ((3, 4), (5, 6), (3, 6), None),
    ],
)
def test_dimensions_that_the_output_does_not_have_are_summed(
    left: tuple[int, ...], right: tuple[int, ...], output: tuple[int, ...], expected: object
) -> None:
    found = label_dot(left, right, output)
    assert (found and found.summed) == expected


def test_what_is_made_alike_is_summed_alike() -> None:
    """Queries (batch, rows, 8) and keys (batch, rows, 8), of as many rows as each has numbers."""
    shape = (2, 8, 8)
    assert label_dot(shape, shape, shape) == Einsum((0, 1, 3), (0, 3, 2), (0, 1, 2))
    assert label_dot(shape, shape, shape, is_alike=True) == Einsum((0, 1, 3), (0, 2, 3), (0, 1, 2))


def test_what_a_module_says_is_believed() -> None:
    found = label_dot((7, 7), (7, 7), (7, 7), summed=((0,), (1,)))
    assert found is not None
    assert found.summed == ((0,), (1,))
    assert label_dot((3, 4), (4, 5), (3, 5), summed=((0,), (0,))) is None


def search_terms(left: list[int], right: list[int], output: list[int]) -> int | None:
    """The same by trying every way to divide the output."""
    for batch in range(len(output) + 1):
        for first_right in range(batch, len(output) + 1):
            of_left = Counter(output[:first_right])
            of_right = Counter(output[:batch] + output[first_right:])
            fits = of_left <= Counter(left) and of_right <= Counter(right)
            summed = Counter(left) - of_left
            if fits and summed == Counter(right) - of_right:
                return math.prod(summed.elements())
    return None


SIZES = st.lists(st.integers(2, 4), max_size=5)


@settings(max_examples=200, deadline=None)
@given(SIZES, SIZES, SIZES)
def test_terms_are_those_of_a_search_over_all_ways(
    left: list[int], right: list[int], output: list[int]
) -> None:
    found = count_terms(tuple(left), tuple(right), tuple(output))
    assert found == search_terms(left, right, output)


def make_program(
    opcode: str, shapes: list[tuple[int, ...]], edges: list[list[int]], node: int
) -> Graph:
    opcodes = np.full(len(shapes), OPCODE_IDS["parameter"], np.uint8)
    opcodes[node] = OPCODE_IDS[opcode]
    return dataclasses.replace(
        make_layout_graph(),
        node_features=make_nodes(shapes),
        node_opcodes=opcodes,
        edges=np.array(edges),
        configurable=np.array([node]),
        configs=encode(np.full((12, 1, 18), -1, np.int8)),
    )


@pytest.mark.parametrize("edges", [[[2, 0], [2, 1]], [[2, 1], [2, 0]]])
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [((3, 4), (4, 5), 0), ((4, 5), (3, 4), 1), ((2, 3, 4), (4, 5), 0), ((4, 5), (2, 3, 4), 1)],
)
def test_a_dot_reads_the_tensor_with_its_first_dimension_on_the_left(
    edges: list[list[int]], first: tuple[int, ...], second: tuple[int, ...], left: int
) -> None:
    output = (*(first if left == 0 else second)[:-1], 5)
    operands = find_operands(make_program("dot", [first, second, output], edges, node=2))
    assert operands.input.tolist() == [-1, -1, left]
    assert operands.kernel.tolist() == [-1, -1, 1 - left]


@pytest.mark.parametrize("kernel_first", [True, False])
def test_a_convolution_knows_its_kernel_by_window_and_features(kernel_first: bool) -> None:
    source, kernel, output = (8, 12, 12, 16), (3, 3, 16, 32), (8, 12, 12, 32)
    shapes = [kernel, source, output] if kernel_first else [source, kernel, output]
    graph = make_program("convolution", shapes, [[2, 0], [2, 1]], node=2)
    features = graph.node_features.copy()
    features[2, 37:39] = 3  # window
    features[2, 93:107] = [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    operands = find_operands(dataclasses.replace(graph, node_features=features))
    assert operands.kernel[2] == (0 if kernel_first else 1)
    assert operands.input[2] == (1 if kernel_first else 0)


def count_impossible_orders(folder: Path) -> int:
    """Operands whose configurations order more dimensions than the operand has."""
    found = 0
    for file in find_files(folder):
        if file.collection.kind == "tile":
            continue
        graph = read_graph(file.path, file.collection)
        operands, configs = find_operands(graph), graph.layouts.expand()
        for first, nodes in ((6, operands.input), (12, operands.kernel)):
            operand = nodes[graph.configurable]
            ranks = np.where(operand >= 0, tensor_ranks(graph)[operand], 0)
            highest = configs[:, :, first : first + 6].max(axis=(0, 2))
            found += int((highest >= np.maximum(ranks, 0)).sum())
    return found


@pytest.mark.parametrize("name", ["sample", "tpu"])
def test_operands_have_the_dimensions_that_are_ordered(
    name: str, request: pytest.FixtureRequest
) -> None:
    assert count_impossible_orders(request.getfixturevalue(name)) == 0
