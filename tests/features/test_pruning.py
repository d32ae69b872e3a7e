"""Cutting a graph down to what the configurations touch."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import k_hop_subgraph, to_undirected

from solution.domain import vocabulary
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.features.pruning import keep_neighbourhood, keep_nodes, merge_rest, neighbourhood
from tests.made.graphs import make_tile_graph

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


@pytest.mark.parametrize(
    ("hops", "kept", "edges"),
    [
        (0, [3], []),
        (1, [2, 3, 4], [[2, 1], [1, 0]]),
        (2, [0, 2, 3, 4, 5], [[4, 3], [3, 2], [2, 1], [1, 0]]),
        (3, [0, 1, 2, 3, 4, 5], [[5, 4], [5, 1], [4, 3], [3, 2], [2, 0]]),
    ],
)
def test_the_drawn_graph_keeps_exactly_these(
    hops: int, kept: list[int], edges: list[list[int]]
) -> None:
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


def test_edge_order_stays_and_so_do_repeated_operands() -> None:
    edges = [(2, 1), (2, 0), (2, 0), (3, 2), (2, 1)]
    assert keep_neighbourhood(make_graph(4, edges, [2]), 1).edges.tolist() == list(map(list, edges))


def test_two_hops_in_one_pass_do_not_run_along_the_edge_list() -> None:
    """Edges are listed so that an in-place walk would reach the end at once."""
    edges = [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert neighbourhood(make_graph(5, edges, [0]), 1).tolist() == [True, True, *[False] * 3]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = draw(st.integers(1, 10))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])))
    return make_graph(nodes, edges, draw(st.lists(ends, min_size=1, max_size=3, unique=True)))


def test_hops_without_end_reach_all_that_is_connected() -> None:
    """A file may ask for any number of them."""
    graph = make_graph(6, [(1, 0), (2, 1), (3, 2), (5, 4)], [0])
    assert neighbourhood(graph, 10**12).tolist() == [True] * 4 + [False] * 2
    assert neighbourhood(graph, 10**12).tolist() == neighbourhood(graph, 3).tolist()


@given(graphs(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_the_kept_nodes_are_those_of_torch_geometric(graph: Graph, hops: int) -> None:
    links = to_undirected(torch.from_numpy(graph.edges.T.copy()), num_nodes=graph.num_nodes)
    expected, _, _, _ = k_hop_subgraph(
        torch.from_numpy(graph.configurable.copy()), hops, links, num_nodes=graph.num_nodes
    )
    pruned = keep_neighbourhood(graph, hops)
    assert pruned.node_features[:, LABEL].tolist() == sorted(expected.tolist())


@given(graphs(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_the_kept_edges_are_those_between_kept_nodes_in_order(graph: Graph, hops: int) -> None:
    pruned = keep_neighbourhood(graph, hops)
    names = pruned.node_features[:, LABEL].astype(int)
    expected = [[u, v] for u, v in graph.edges.tolist() if {u, v} <= set(names.tolist())]
    assert names[pruned.edges].reshape(-1, 2).tolist() == expected


@given(graphs(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_pruned_graph_has_nothing_left_to_cut_and_comes_back_itself(
    graph: Graph, hops: int
) -> None:
    pruned = keep_neighbourhood(graph, hops)
    assert keep_neighbourhood(pruned, hops) is pruned


def test_nodes_in_another_order_are_another_graph() -> None:
    graph = make_graph(3, [(1, 0), (2, 1)], [1])
    turned = keep_nodes(graph, np.array([2, 1, 0]))
    assert turned.node_features[:, LABEL].tolist() == [2, 1, 0]
    assert turned.edges.tolist() == [[1, 2], [0, 1]]


@pytest.mark.parametrize("prune", [keep_neighbourhood, merge_rest])
def test_a_tile_graph_comes_back_whole(prune: Callable[[Graph], Graph]) -> None:
    graph = make_tile_graph()
    assert prune(graph) is graph


@pytest.mark.parametrize("prune", [keep_neighbourhood, merge_rest])
def test_the_input_graph_is_not_modified(prune: Callable[[Graph], Graph]) -> None:
    graph = make_graph(6, CHAIN, [3])
    arrays = [field.name for field in dataclasses.fields(graph) if field.name != "collection"]
    before = {name: np.copy(getattr(graph, name)) for name in arrays}
    prune(graph)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(graph, name), value)


def test_the_rest_of_the_drawn_graph_becomes_one_virtual_node_a_piece() -> None:
    merged = merge_rest(make_graph(6, CHAIN, [3]), 1)
    # 2, 3, 4 are kept as 0, 1, 2; {0} becomes 3 and {1, 5} becomes 4.
    assert merged.node_features[:, LABEL].tolist() == [2, 3, 4, 0, 3]
    assert merged.node_opcodes.tolist() == [3, 4, 5, vocabulary.VIRTUAL, vocabulary.VIRTUAL]
    assert merged.edges.tolist() == [[4, 2], [2, 1], [1, 0], [0, 3]]
    assert merged.configurable.tolist() == [1]


def test_a_virtual_node_is_linked_once_each_way() -> None:
    """Nodes 1, 2, 3 are one piece; both 1 and 2 feed node 0, and node 0 feeds 3."""
    edges = [(0, 1), (0, 2), (3, 0), (2, 1), (3, 2)]
    merged = merge_rest(make_graph(4, edges, [0]), 0)
    assert merged.edges.tolist() == [[0, 1], [1, 0]]
    assert merged.node_features[1, LABEL] == 2


def test_a_repeated_operand_of_a_kept_node_stays_when_the_rest_is_merged() -> None:
    """multiply(x, x) takes x twice; only the links of virtual nodes are there once."""
    graph = make_graph(4, [(1, 0), (1, 0), (2, 1), (3, 2)], [0])
    kept = keep_neighbourhood(graph, 1).edges.tolist()
    assert kept == [[1, 0], [1, 0]]
    assert merge_rest(graph, 1).edges.tolist() == [*kept, [2, 1]]


def test_nothing_is_merged_where_everything_is_near() -> None:
    graph = make_graph(3, [(1, 0), (2, 1)], [1])
    assert merge_rest(graph, 1) is graph


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
