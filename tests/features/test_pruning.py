"""Cutting a graph down to what the configurations touch."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import k_hop_subgraph, to_undirected

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operations import tensor_ranks
from solution.features.preparation import (
    erase_padding,
    keep_neighbourhood,
    merge_rest,
    repair_padding,
)
from tests.made.builder import Shape
from tests.made.graphs import make_nodes, make_tile_graph

LABEL = 30  # a column that carries each node's number, to recognise it afterwards


def make_graph(nodes: int, edges: list[tuple[int, int]], configurable: list[int]) -> Graph:
    features = np.zeros((nodes, vocabulary.NUM_NODE_FEATURES), np.float32)
    features[:, LABEL] = np.arange(nodes)
    return Graph(
        name="drawn",
        collection=collection("layout:xla:random"),
        node_features=features,
        node_opcodes=np.arange(1, nodes + 1, dtype=np.uint8),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        configurable=np.array(configurable, np.int64),
        configs=np.zeros((2, len(configurable), vocabulary.NUM_LAYOUT_FEATURES), np.int8),
        runtimes=np.array([1.0, 2.0]),
    )


#   0   1          5 consumes 4 and 1, 4 consumes 3, 3 consumes 2, 2 consumes 0.
#   |   |          Node 3 is configurable.
#   2-3-4-5-1
CHAIN = [(5, 4), (5, 1), (4, 3), (3, 2), (2, 0)]


@pytest.mark.parametrize(("hops", "kept", "edges"), [
    (0, [3], []), (1, [2, 3, 4], [[2, 1], [1, 0]]),
    (2, [0, 2, 3, 4, 5], [[4, 3], [3, 2], [2, 1], [1, 0]]),
    (3, [0, 1, 2, 3, 4, 5], [[5, 4], [5, 1], [4, 3], [3, 2], [2, 0]]),
])  # fmt: skip
def test_the_drawn_graph_keeps_these(hops: int, kept: list[int], edges: list[list[int]]) -> None:
    pruned = keep_neighbourhood(make_graph(6, CHAIN, [3]), hops)
    assert pruned.node_features[:, LABEL].tolist() == kept
    assert pruned.node_opcodes.tolist() == [node + 1 for node in kept]
    assert pruned.edges.tolist() == edges
    assert pruned.configurable.tolist() == [kept.index(3)]


def test_configurations_and_their_order_survive() -> None:
    graph = make_graph(6, CHAIN, [5, 0])
    pruned = keep_neighbourhood(graph, 0)
    assert pruned.node_features[pruned.configurable, LABEL].tolist() == [5, 0]
    assert pruned.configs is graph.configs
    assert pruned.runtimes is graph.runtimes


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(1, 10))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])))
    return make_graph(nodes, edges, draw(st.lists(ends, min_size=1, max_size=3, unique=True)))


@given(graphs(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_kept_nodes_are_those_of_torch_geometric(graph: Graph, hops: int) -> None:
    links = to_undirected(torch.from_numpy(graph.edges.T.copy()), num_nodes=graph.num_nodes)
    expected, _, _, _ = k_hop_subgraph(
        torch.from_numpy(graph.configurable.copy()), hops, links, num_nodes=graph.num_nodes
    )
    pruned = keep_neighbourhood(graph, hops)
    names = pruned.node_features[:, LABEL].astype(int)
    assert names.tolist() == sorted(expected.tolist())
    edges = [[u, v] for u, v in graph.edges.tolist() if {u, v} <= set(names.tolist())]
    assert names[pruned.edges].reshape(-1, 2).tolist() == edges
    assert keep_neighbourhood(pruned, hops) is pruned


def test_the_rest_of_the_drawn_graph_becomes_one_virtual_node_a_piece() -> None:
    merged = merge_rest(make_graph(6, CHAIN, [3]), 1)
    # 2, 3, 4 are kept as 0, 1, 2; {0} becomes 3 and {1, 5} becomes 4.
    assert merged.node_features[:, LABEL].tolist() == [2, 3, 4, 0, 3]
    assert merged.node_opcodes.tolist() == [3, 4, 5, vocabulary.VIRTUAL, vocabulary.VIRTUAL]
    assert merged.edges.tolist() == [[4, 2], [2, 1], [1, 0], [0, 3]]
    assert merged.configurable.tolist() == [1]


@given(graphs(), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_merged_pieces_are_connected_means_of_the_rest(graph: Graph, hops: int) -> None:
    merged = merge_rest(graph, hops)
    kept = keep_neighbourhood(graph, hops).node_features[:, LABEL].astype(int).tolist()
    rest = sorted(set(range(graph.num_nodes)) - set(kept))
    pieces = slow_pieces(rest, graph.edges.tolist())
    assert merged.node_features[: len(kept), LABEL].astype(int).tolist() == kept
    means = merged.node_features[len(kept) :, LABEL].tolist()
    assert sorted(means) == pytest.approx(sorted(float(np.mean(piece)) for piece in pieces))
    assert (merged.node_opcodes[len(kept) :] == vocabulary.VIRTUAL).all()
    assert (merged.edges[:, 0] != merged.edges[:, 1]).all()


def slow_pieces(rest: list[int], edges: list[list[int]]) -> list[list[int]]:
    """Connected pieces of the nodes `rest`, by joining sets until nothing changes."""
    pieces = [{node} for node in rest]
    for u, v in edges * len(rest):
        touched = [piece for piece in pieces if piece & {u, v}]
        if u in rest and v in rest and len(touched) == 2:
            pieces = [piece for piece in pieces if piece not in touched]
            pieces.append(touched[0] | touched[1])
    return [sorted(piece) for piece in pieces]


Node = tuple[str, Shape, list[int]]  # opcode, shape and dimensions
DIMENSIONS, LAYOUT = slice(31, 37), slice(134, 140)
# Columns 93-106: two input numbers, four spatial, two kernel, four spatial, two output.
CONVOLUTION = slice(93, 107)


def make_kernel(nodes: list[Node], edges: list[tuple[int, int]]) -> Graph:
    """A graph whose dimensions are padded with 0, as in npz files."""
    features = make_nodes([shape for _, shape, _ in nodes])
    for row, (_, _, dimensions) in zip(features, nodes, strict=True):
        row[31 : 31 + len(dimensions)] = dimensions
    return dataclasses.replace(
        make_tile_graph(configs=1, labelled=False),
        node_features=features,
        node_opcodes=np.array([OPCODE_IDS[opcode] for opcode, _, _ in nodes], np.uint8),
        edges=np.array(edges, np.int64).reshape(-1, 2),
    )


def repaired_dimensions(opcode: str, shape: Shape, dimensions: list[int], operand: Shape) -> list:
    """Columns 31-36 of a node that takes one operand of the shape `operand`."""
    graph = make_kernel([("parameter", operand, []), (opcode, shape, dimensions)], [(1, 0)])
    return repair_padding(graph).node_features[1, DIMENSIONS].tolist()


@pytest.mark.parametrize(("opcode", "shape", "dimensions", "operand"), [
    ("transpose", (5, 4, 3), [2, 1, 0], (3, 4, 5)), ("transpose", (4, 3), [1, 0], (3, 4)),
    ("transpose", (4, 3), [0, 1], (4, 3)), ("broadcast", (4, 3, 5), [0], (4,)),
    ("broadcast", (4, 3, 5), [0, 2], (4, 5)), ("broadcast", (4, 3, 5), [], ()),
    ("reduce", (3,), [0], (4, 3)), ("reduce", (5,), [1, 0], (3, 4, 5)),
    ("reduce", (), [0, 1], (3, 4)), ("reduce", (), [2, 1, 0], (3, 4, 5)),
    ("concatenate", (8, 3), [0], (4, 3)), ("concatenate", (4, 6), [1], (4, 3)),
    ("reverse", (4, 3), [0, 1], (4, 3)), ("tanh", (4, 3), [], (4, 3)), ("convert", (), [], ()),
])  # fmt: skip
def test_dimensions_keep_axis_0_where_it_is_listed_and_lose_the_padding(
    opcode: str, shape: Shape, dimensions: list[int], operand: Shape
) -> None:
    expected = dimensions + [-1] * (6 - len(dimensions))
    assert repaired_dimensions(opcode, shape, dimensions, operand) == expected


def test_what_is_not_0_stays_where_the_shape_is_a_tuple() -> None:
    """A reduce of two outputs has no rank of its own."""
    assert repaired_dimensions("reduce", (), [0, 2], (3, 4, 5))[:2] == [0, 2]


@pytest.mark.parametrize("rank", [0, 1, 2, 6])
def test_layouts_are_padded_past_the_rank(rank: int) -> None:
    graph = repair_padding(make_kernel([("parameter", (2, 3, 4, 5, 6, 7)[:rank], [])], []))
    expected = [*reversed(range(rank)), *[-1] * (6 - rank)]
    assert graph.node_features[0, LAYOUT].tolist() == expected


def test_a_convolution_keeps_its_numbers_and_loses_the_unused_spatial_slots() -> None:
    """Batch 0 of an image, spatial 1 and 2, feature 3; of the kernel, spatial 0 and 1."""
    shapes = ((2, 9, 9, 3), (3, 3, 3, 8), (2, 7, 7, 8))
    opcodes = ("parameter", "parameter", "convolution")
    nodes: list[Node] = [(*node, []) for node in zip(opcodes, shapes, strict=True)]
    graph = make_kernel(nodes, [(2, 0), (2, 1)])
    features = graph.node_features.copy()
    features[2, CONVOLUTION] = [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    repaired = repair_padding(dataclasses.replace(graph, node_features=features)).node_features[2]
    assert repaired[CONVOLUTION].tolist() == [0, 3, 1, 2, -1, -1, 2, 3, 0, 1, -1, -1, 0, 3]
    assert repaired[DIMENSIONS].tolist() == [-1] * 6


@pytest.mark.parametrize("shape", [
    (), (1,), (4, 3), (1, 1, 1), (2, 3, 4, 5, 6, 7), (4, 0), (0, 3, 0), (2, 0, 0),
])  # fmt: skip
def test_the_rank_follows_the_shape_and_where_that_ends_in_0_the_layout(shape: Shape) -> None:
    graph = make_kernel([("parameter", shape, [])], [])
    assert tensor_ranks(graph).tolist() == [len(shape)]
    assert tensor_ranks(repair_padding(graph)).tolist() == [len(shape)]


def test_a_reduce_keeps_axis_0_when_its_computation_and_initial_value_come_first() -> None:
    """The real files list the producers of a node by number, called computations among them."""
    graph = make_kernel(
        [("add", (), []), ("constant", (), []), ("parameter", (3, 4), []), ("reduce", (4,), [0])],
        [(3, 0), (3, 1), (3, 2)],
    )
    expected = [0, -1, -1, -1, -1, -1]
    assert repair_padding(graph).node_features[3, DIMENSIONS].tolist() == expected


def count_reduces_without_axes(folder: Path) -> int:
    found = 0
    for file in find_files(folder)[::3]:
        if file.path.stat().st_size < 3_000_000:
            graph = repair_padding(read_graph(file.path, file.collection))
            reduces = graph.node_opcodes == OPCODE_IDS["reduce"]
            found += int((graph.node_features[reduces, 31] == -1).sum())
    return found


@pytest.mark.parametrize("name", ["sample", "tpu"])
def test_every_reduce_reduces_an_axis(name: str, request: pytest.FixtureRequest) -> None:
    assert count_reduces_without_axes(request.getfixturevalue(name)) == 0


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Nodes of all kinds in a row, each taking the one before it, with random dimensions."""
    opcodes = ["transpose", "broadcast", "reduce", "concatenate", "sort", "convolution", "add"]
    size = draw(st.integers(2, 6))
    shapes = st.lists(st.integers(0, 4), max_size=6).map(tuple)
    node = st.tuples(st.sampled_from(opcodes), shapes, st.lists(st.integers(0, 5), max_size=6))
    nodes = draw(st.lists(node, min_size=size, max_size=size))
    graph = make_kernel(nodes, [(node, node - 1) for node in range(1, size)])
    features = graph.node_features.copy()
    features[:, CONVOLUTION] = draw(st.integers(0, 3))
    return dataclasses.replace(graph, node_features=features)


@given(chains())
@settings(max_examples=60, deadline=None)
def test_only_zeros_become_padding_and_only_at_the_end_of_a_list(graph: Graph) -> None:
    before, after = graph.node_features, repair_padding(graph).node_features
    for columns in (DIMENSIONS, LAYOUT):
        changed = before[:, columns] != after[:, columns]
        assert (before[:, columns][changed] == 0).all()
        assert (np.diff((after[:, columns] == -1).astype(int), axis=1) >= 0).all()


def test_what_is_erased_is_0_as_in_the_file_and_repaired_again() -> None:
    """A transpose (3, 4): two of six slots of `dimensions` and of the layout are used."""
    graph = make_kernel([("parameter", (4, 3), []), ("transpose", (3, 4), [1, 0])], [(1, 0)])
    repaired = repair_padding(graph)
    assert repaired.node_features[1, DIMENSIONS].tolist() == [1, 0, -1, -1, -1, -1]
    assert repaired.node_features[1, LAYOUT].tolist() == [1, 0, -1, -1, -1, -1]
    erased = erase_padding(repaired)
    np.testing.assert_array_equal(erased.node_features, graph.node_features)
    np.testing.assert_array_equal(repair_padding(erased).node_features, repaired.node_features)
