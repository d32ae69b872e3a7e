"""Which nodes published nets look at, and the rows that they are given."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from solution.papers.node_subsets import (
    NodeInputs,
    NodeRows,
    NodeSettings,
    choose_at_random,
    choose_by_contents,
    hash_nodes,
    layout_numbers,
    prepare_nodes,
)
from solution.papers.tpugraphs import TpuGraphs, TpuGraphsSettings
from tests.made.graphs import make_layout_graph, renumber_nodes

NOBODY = np.zeros(6, bool)


def test_nodes_that_look_alike_come_together_and_what_does_not_fit_is_passed_over() -> None:
    keys = np.array([5, 5, 1, 2, 2, 2], np.uint64)
    assert choose_by_contents(keys, 3, NOBODY).tolist() == [0, 1, 2]
    assert choose_by_contents(keys, 4, NOBODY).tolist() == [2, 3, 4, 5]
    preferred = np.array([True, False, False, False, False, False])
    assert choose_by_contents(keys, 2, preferred).tolist() == [0, 2]


@settings(max_examples=25, deadline=None)
@given(num_nodes=st.integers(2, 50), share=st.floats(0.1, 0.9), seed=st.integers(0, 1000))
def test_random_nodes_are_as_many_as_asked_and_the_preferred_come_first(
    num_nodes: int, share: float, seed: int
) -> None:
    torch.manual_seed(seed)
    count = min(num_nodes - 1, max(1, round(share * num_nodes)))
    preferred = np.random.default_rng(seed).random(num_nodes) < 0.3
    chosen = choose_at_random(count, preferred)
    assert len(set(chosen.tolist())) == count
    assert preferred[chosen].sum() == min(count, preferred.sum())


def test_the_hash_of_a_node_follows_it_and_says_what_is_around_it() -> None:
    graph = make_layout_graph(3)
    renumbered, old = renumber_nodes(graph, 0)
    np.testing.assert_array_equal(hash_nodes(renumbered), hash_nodes(graph)[old])
    without = dataclasses.replace(graph, edges=graph.edges[1:])  # node 0 loses its consumer
    assert hash_nodes(without)[0] != hash_nodes(graph)[0]


def test_what_is_kept_is_the_induced_graph_with_the_layouts_of_its_nodes() -> None:
    graph = make_layout_graph(0)  # edges to operands 2-0 2-1 4-2 4-3 5-4 6-5 7-6
    whole = prepare_nodes(graph, NodeSettings())
    part = whole.keep(torch.tensor([2, 4, 6, 7]))
    assert part.edge_index.T.tolist() == [[0, 1], [2, 3]]  # 2 to 4, 6 to 7
    assert part.configurable.tolist() == [0, 3]  # 2 and 7, but not 5
    configs = np.array([3, 1, 4])
    torch.testing.assert_close(part.given(configs), whole.given(configs)[[0, 2]])
    again = part.keep(torch.tensor([3]))
    torch.testing.assert_close(again.given(configs), whole.given(configs)[[2]])


def test_a_row_is_the_product_of_everything_that_is_known_of_a_node() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(make_layout_graph(0), NodeSettings())
    rows, configs = NodeRows(8), np.array([0, 2])
    found = rows(inputs, layout_numbers(inputs, configs))
    weights = torch.cat([rows.node.weight, rows.layout.weight], dim=1)
    layouts = inputs.given(configs)
    for node, config in np.ndindex(len(inputs.opcodes), 2):
        given_here = torch.zeros(18)
        for place in np.flatnonzero(inputs.configurable.numpy() == node):
            given_here = layouts[place, config] / 6
        features = [rows.opcode.weight[inputs.opcodes[node]], inputs.numeric[node]]
        row = torch.cat([*features, inputs.tokens[node] / 6, given_here])
        expected = rows.out(functional.gelu(weights @ row + rows.node.bias))
        torch.testing.assert_close(found[node, config], expected)


def test_a_net_that_draws_by_work_learns_from_what_works() -> None:
    graph = make_layout_graph(0)  # node 2 is the dot
    drawn = {}
    for draw in ("evenly", "work"):
        nodes = NodeSettings(trained=2, draw=draw)
        net = TpuGraphs(TpuGraphsSettings(width=8, nodes=nodes))
        inputs = prepare_nodes(graph, nodes)
        assert inputs.work[2] == inputs.work.max()
        torch.manual_seed(0)
        taken = [net.train().take(inputs).keys for _ in range(200)]
        drawn[draw] = np.mean([inputs.keys[2] in keys for keys in taken])
    assert drawn["work"] > drawn["evenly"] + 0.3


def _counts(nodes: NodeSettings) -> tuple[int, int]:
    """How many nodes are looked at while training and while predicting."""
    net = TpuGraphs(TpuGraphsSettings(width=8, nodes=nodes))
    inputs = prepare_nodes(make_layout_graph(0), nodes)
    taken: list[NodeInputs] = [net.train().take(inputs), net.eval().take(inputs)]
    return len(taken[0].opcodes), len(taken[1].opcodes)


@pytest.mark.parametrize(
    ("nodes", "expected", "hops"),
    [
        (NodeSettings(), (8, 8), None),
        (NodeSettings(trained=5, scored=3), (5, 3), None),
        (NodeSettings(trained=5), (5, 8), None),
        (NodeSettings(pruning="neighbourhood", hops=0), (3, 3), 0),
        (NodeSettings(pruning="neighbourhood", hops=0, trained=2), (2, 3), 0),
    ],
    ids=["whole", "random", "random while training", "pruned", "pruned, random while training"],
)
def test_nodes_are_pruned_or_drawn(
    nodes: NodeSettings, expected: tuple[int, int], hops: int | None
) -> None:
    assert _counts(nodes) == expected
    assert TpuGraphsSettings(nodes=nodes).needed_hops == hops
