"""What dots sum stands where convolutions say it, and in tables."""

import dataclasses

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.contractions import (
    FEATURES,
    contraction_rows,
    contractions,
    mark_contractions,
)
from solution.features.preparation import Preparation
from solution.features.pruning import keep_neighbourhood, merge_rest
from solution.programs.hlo.nodes import read_nodes
from tests.made import modules
from tests.made.graphs import make_layout_graph


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
