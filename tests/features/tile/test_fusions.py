"""A kernel with fusions is described as the one computation that runs."""

import dataclasses
import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.padding import repair_padding, tensor_ranks
from solution.features.table import feature_table
from solution.features.tile.fusions import inline_fusions
from tests.features.tile.test_tile_table import make_kernel, make_tile

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


def test_without_fusions_nothing_changes() -> None:
    graph = make_unfused()
    assert inline_fusions(graph) is graph


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


def test_a_computation_that_two_fusions_call_stays() -> None:
    """Which operand its parameter is depends on the caller."""
    nodes: list[tuple[str, tuple[int, ...]]] = [
        *[("parameter", (8, 8)), ("tanh", (8, 8))],
        *[("parameter", (8, 8)), ("fusion", (8, 8)), ("fusion", (8, 8))],
    ]
    graph = make_graph(nodes, [(4, 3), (6, 4), (6, 5), (7, 4), (7, 6)], [4, 7], {})
    assert inline_fusions(graph) is graph


@pytest.mark.parametrize("make", [make_fused, make_unfused])
def test_graphs_are_not_kept_in_memory(make: Callable[[], Graph]) -> None:
    graph = make()
    inline_fusions(graph)
    left = weakref.ref(graph)
    del graph
    gc.collect()
    assert left() is None


def test_a_fusion_that_is_not_linked_to_what_it_calls_stays() -> None:
    nodes: list[tuple[str, tuple[int, ...]]] = [("parameter", (8, 16)), ("fusion", (8, 16))]
    graph = make_graph(nodes, [(4, 3)], [4], {})
    assert inline_fusions(graph) is graph


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
