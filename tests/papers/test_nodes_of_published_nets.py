"""Which nodes published nets look at, and the rows that they are given."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from solution.papers.nodes import (
    NodeInputs,
    NodeRows,
    NodeSettings,
    choose_at_random,
    choose_by_contents,
    hash_nodes,
    layout_numbers,
    mix_keys,
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


def test_where_all_nodes_look_alike_they_are_all_kept() -> None:
    assert choose_by_contents(np.full(6, 7, np.uint64), 2, NOBODY).tolist() == [0, 1, 2, 3, 4, 5]


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


def test_other_random_nodes_are_drawn_each_time() -> None:
    draws = {tuple(choose_at_random(5, np.zeros(50, bool))) for _ in range(10)}
    assert len(draws) > 5


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


def test_nodes_are_drawn_as_often_as_they_work() -> None:
    """Of two drawn from three that weigh 1, 2 and 5: 5 is among them in 1 - (1/8 2/7 + 2/8 1/6)."""
    torch.manual_seed(0)
    weights, nobody = np.array([1.0, 2.0, 5.0]), np.zeros(3, bool)
    draws = [choose_at_random(2, nobody, weights).tolist() for _ in range(4000)]
    without = 1 / 8 * 2 / 7 + 2 / 8 * 1 / 6
    assert np.mean([2 in drawn for drawn in draws]) == pytest.approx(1 - without, abs=0.02)
    first = [choose_at_random(1, nobody, weights)[0] for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(first) / 4000, weights / 8, atol=0.03)


def test_a_net_that_draws_by_work_learns_from_what_works() -> None:
    graph = make_layout_graph(0)  # node 2 is the dot
    drawn = {}
    for draw in ("evenly", "work"):
        nodes = NodeSettings(trained=2, draw=draw)
        net, inputs = (
            TpuGraphs(TpuGraphsSettings(width=8, nodes=nodes)),
            prepare_nodes(graph, nodes),
        )
        assert inputs.work[2] == inputs.work.max()
        torch.manual_seed(0)
        taken = [net.train().take(inputs).keys for _ in range(200)]
        drawn[draw] = np.mean([inputs.keys[2] in keys for keys in taken])
    assert drawn["work"] > drawn["evenly"] + 0.3


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(0, 999))
def test_mixed_keys_are_equal_where_the_keys_are(keys: list[int], number: int) -> None:
    before = np.array(keys, np.uint64)
    after = mix_keys(before, number)
    np.testing.assert_array_equal(after[:, None] == after, before[:, None] == before)


def test_a_graph_is_predicted_from_all_nodes_or_from_the_mean_of_subsets() -> None:
    graph, settings = make_layout_graph(3), TpuGraphsSettings(width=8)
    torch.manual_seed(0)
    net = TpuGraphs(settings)
    inputs = prepare_nodes(graph, NodeSettings())
    net.nodes = NodeSettings(trained=2)
    whole = net.score_graph(inputs)
    net.nodes = NodeSettings()
    np.testing.assert_array_equal(net.score_graph(inputs), whole)
    net.nodes = NodeSettings(scored=3, subsets=5)
    subsets = [net.eval().take(inputs, number) for number in range(5)]
    assert len({tuple(taken.keys) for taken in subsets}) > 2
    every = np.arange(len(inputs.codebook.codes))
    with torch.no_grad():
        expected = np.mean([net.score(taken, every).numpy() for taken in subsets], axis=0)
    np.testing.assert_allclose(net.score_graph(inputs), expected, atol=1e-6)
    net.nodes = NodeSettings(scored=100, subsets=5)
    np.testing.assert_array_equal(net.score_graph(inputs), whole)


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
