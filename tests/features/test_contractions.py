"""What dots sum over is told from shapes: by hand, at random, and as real modules have it."""

import dataclasses
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.data.hlo.nodes import read_nodes
from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.contractions import (
    FEATURES,
    contraction_rows,
    contractions,
    find_summed,
    mark_contractions,
)
from solution.features.preparation import Preparation
from solution.features.pruning import keep_neighbourhood, merge_rest
from tests.made import modules
from tests.made.graphs import make_layout_graph

PRIMES = [2, 3, 5, 7, 11, 13, 17, 19]


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
    assert find_summed(left, right, output) == expected


@given(st.permutations(PRIMES), st.lists(st.integers(0, 2), min_size=4, max_size=4), st.randoms())
def test_of_sizes_that_differ_every_dimension_is_found(
    sizes: list[int], counts: list[int], random: Random
) -> None:
    batch, left, right, summed = (
        sizes[sum(counts[:place]) : sum(counts[: place + 1])] for place in range(4)
    )
    shapes = []
    for own in (left, right):  # own dimensions stay in order, the others stand anywhere
        shape = list(own)
        for size in (*batch, *summed):
            shape.insert(random.randint(0, len(shape)), size)
        shapes.append(tuple(shape))
    found = find_summed(*shapes, tuple(batch + left + right))
    assert found is not None
    for shape, dimensions in zip(shapes, found, strict=True):
        assert sorted(shape[place] for place in dimensions) == sorted(summed)


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
        *(modules.node(place, "exponential", square, (place - 1,)) for place in (3, 4, 5)),
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
