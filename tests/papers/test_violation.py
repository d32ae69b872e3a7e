"""Violation ratios, chosen features and preferred nodes against examples worked by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.features.layout.violations import violation_ratios
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.papers import violation
from solution.papers.node_subsets import NodeSettings
from solution.papers.soft_attention import SoftAttention, apply_mask
from solution.papers.tgraph import Block, ChannelAttention, ConfigAttention, TGraph, TGraphSettings
from solution.papers.tpugraphs import TpuGraphsTileSettings, prepare_kernel
from solution.papers.wrappers import SublistAverage, SublistAverageSettings
from tests.made.graphs import make_layout_graph, make_nodes, make_tile_graph
from tests.made.position_ranker import PositionRanker

NONE = -np.ones(vocabulary.NUM_LAYOUT_FEATURES, np.int8)


def _layout(**tensors: tuple[int, ...]) -> np.ndarray:
    """A layout (18,) that orders the tensors output, input and kernel as given."""
    layout = NONE.copy()
    for name, order in tensors.items():
        first = vocabulary.LAYOUT_TENSORS.index(name) * vocabulary.MAX_RANK
        layout[first : first + len(order)] = order
    return layout


def _with_layouts(layouts: list[list[np.ndarray]]) -> Graph:
    """The small program, x (6, 9) -> dot 2 -> add 4 -> reshape 5 -> tanh 6 -> reshape 7."""
    nodes = make_nodes([(6, 9), (9, 4), (6, 4), (6, 4), (6, 4), (6, 1, 4), (6, 1, 4), (24,)])
    graph = make_layout_graph(0, configs=len(layouts))
    return dataclasses.replace(graph, node_features=nodes, configs=encode(np.array(layouts)))


def test_the_violation_ratio_of_a_worked_example() -> None:
    # The outputs are (6, 4), (6, 1, 4) and (24,): 6, 6 and 24 are the largest.
    layouts = [
        [_layout(output=(0, 1)), _layout(output=(0, 1, 2)), _layout(output=(0,))],  # none
        [_layout(output=(1, 0)), _layout(output=(0, 1, 2)), _layout(output=(0,))],  # 4 < 6
        [_layout(output=(1, 0)), _layout(output=(2, 1, 0)), NONE],  # two of three
        [NONE, _layout(output=(1, 2, 0)), _layout(input=(0, 1, 2))],  # one of three
        [NONE, NONE, NONE],
    ]
    graph = _with_layouts(layouts)
    expected = np.array([0, 1 / 3, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(violation_ratios(graph)[graph.layouts.rows], expected)


def test_a_node_without_a_layout_may_count_with_the_programs_own() -> None:
    # In the program the last dimension is contiguous: 4 < 6 and 4 < 6 violate, 24 does not.
    layouts = [
        [NONE, NONE, NONE],
        [_layout(output=(0, 1)), NONE, NONE],
        [_layout(output=(0, 1)), _layout(output=(0, 1, 2)), NONE],
    ]
    graph = _with_layouts(layouts)
    ratios = violation_ratios(graph, "program")[graph.layouts.rows]
    np.testing.assert_allclose(ratios, [2 / 3, 1 / 3, 0])


DISAGREEING = [[_layout(output=(1, 0)), _layout(input=(0, 1)), NONE], 3 * [NONE]]


def test_nodes_of_importance_of_a_worked_example() -> None:
    """The addition 4 hands the order of the dot 2 on to the reshape 5, the tanh 6 that of 5 to 7.

    So 2 and 5 may disagree on the tensors of 2 and 4, and 5 and 7 on those of 5 and 6; nobody
    orders the parameters 0, 1 and 3 in two ways.
    """
    graph = _with_layouts(DISAGREEING)
    assert np.flatnonzero(violation.find_important(graph)).tolist() == [2, 4, 5, 6, 7]
    without = dataclasses.replace(graph, edges=graph.edges[:-1])  # nobody hands on to 7
    assert np.flatnonzero(violation.find_important(without)).tolist() == [2, 4, 5]


def test_the_ratio_reaches_the_score_where_it_is_asked_for() -> None:
    graph = make_layout_graph(1)
    for ratio in (True, False):
        torch.manual_seed(0)
        ranker = violation.ViolationSettings(width=8, ratio=ratio).build(0)
        net, inputs = violation.ViolationNet(ranker.settings), ranker.prepare(graph)
        other = dataclasses.replace(inputs, ratio=inputs.ratio + 1)
        differs = not np.allclose(net.score_graph(inputs), net.score_graph(other))
        assert differs == ratio


def test_configurable_nodes_and_those_of_importance_are_kept_first() -> None:
    graph = _with_layouts(DISAGREEING)
    bare = dataclasses.replace(graph, edges=graph.edges[:-1])  # 7 alone: 2, 4, 5 may disagree
    assert np.flatnonzero(violation.find_preferred(bare)).tolist() == [2, 4, 5, 7]
    nodes = NodeSettings(trained=5, scored=5)
    ranker = violation.ViolationSettings(width=8, importance=True, nodes=nodes).build(0)
    net, inputs = violation.ViolationNet(ranker.settings), ranker.prepare(bare)
    for taken in (net.train().take(inputs), net.eval().take(inputs)):
        assert len(taken.opcodes) == 5 and taken.preferred.sum() == 4
        assert len(taken.configurable) == 3


GRAPHS = [make_layout_graph(1, configs=23), make_tile_graph(1, configs=23)]
TREES = LightGBMSettings(rounds=10, min_data_in_leaf=3)


@pytest.mark.parametrize("graph", GRAPHS, ids=["layout", "tile"])
def test_a_ranker_that_ignores_the_list_is_left_as_it_is(graph: Graph) -> None:
    settings = SublistAverageSettings(TREES, size=5, times=3)
    averaged = settings.build(0).fit([graph], [])
    alone = TREES.build(0).fit([graph], [])
    np.testing.assert_array_equal(averaged.predict(graph), alone.predict(graph))
    assert (settings.needed_hops, settings.learns) == (TREES.needed_hops, TREES.learns)


def test_orders_differ_and_average_the_places_out() -> None:
    graph = make_tile_graph(2, configs=12)
    few, many = (SublistAverage(PositionRanker(), 100, times=t, seed=0) for t in (1, 2000))
    places = np.unique(few.predict(graph))
    np.testing.assert_allclose(places, np.arange(len(places)) / len(places), atol=1e-6)
    assert np.ptp(many.predict(graph)) < 0.1


def test_the_mask_of_three_nodes_by_hand() -> None:
    """0 and 1 are adjacent. Weights 1, 1, 0.1 of node 0 and 1, and 0.1, 0.1, 1 of node 2."""
    x = torch.tensor([[1.0], [2.0], [10.0]])
    found = apply_mask(x, torch.tensor([[0], [1]]), 0.1)
    expected = [(1 + 2 + 1) / 2.1, (1 + 2 + 1) / 2.1, (0.1 + 0.2 + 10) / 1.2]
    torch.testing.assert_close(found[:, 0], torch.tensor(expected))
    # a node with 999 neighbours: bfloat16, as on a GPU, has no number between 256 and 258
    star = (torch.arange(1000) >= 500).bfloat16()[:, None]
    edges = torch.stack([torch.zeros(999, dtype=torch.int64), torch.arange(1, 1000)])
    assert apply_mask(star, edges, 0.1)[0] == 0.5


def test_the_mask_comes_before_the_attention_which_is_of_16_heads_of_32() -> None:
    torch.manual_seed(0)
    block, edges = SoftAttention(8, 16, 32, mask=0.1), torch.tensor([[0, 1], [1, 2]])
    assert block.attention.project.out_features == 3 * 16 * 32
    x = torch.randn(5, 2, 8)
    masked = block.attention(apply_mask(x, edges, 0.1))
    torch.testing.assert_close(block(x, edges), masked + block.mlp(block.norm(masked)))
    block.mask = None
    plain = block.attention(x)
    torch.testing.assert_close(block(x, edges), plain + block.mlp(block.norm(plain)))


@pytest.mark.parametrize("join", ["late", "early"])
def test_kernels_attend_to_themselves_alone(join: str) -> None:
    torch.manual_seed(0)
    settings = TpuGraphsTileSettings(width=8, join=join, heads=2, head_width=4)
    net = settings.build(0).make_net().eval()
    kernels = [prepare_kernel(make_tile_graph(seed)) for seed in range(3)]
    configs = np.array([[0, 1, 2], [3, 0, 1]])
    together = net.score_batch(kernels, configs)
    for row, column in np.ndindex(*configs.shape):
        alone = net.score_graph(kernels[column])[configs[row, column]]
        assert alone == pytest.approx(together[row, column].item(), abs=1e-4)


def test_config_attention_is_a_softmax_over_the_configurations() -> None:
    attention = ConfigAttention()
    x = torch.randn(2, 3, 4)
    temperature = float(attention.temperature.detach())
    for node, config, channel in np.ndindex(*x.shape):
        strengths = [np.exp(float(x[node, other, channel]) / temperature) for other in range(3)]
        expected = float(x[node, config, channel]) * strengths[config] / sum(strengths)
        found = attention(x)[node, config]
        np.testing.assert_allclose(found[channel].item(), x[node, config, channel], rtol=1e-5)
        np.testing.assert_allclose(found[4 + channel].item(), expected, rtol=1e-4)


def test_channel_attention_gates_each_configuration_by_the_mean_of_its_nodes() -> None:
    attention = ChannelAttention(16)
    x = torch.randn(5, 3, 16)
    for config in range(3):
        gate = attention.gate(x[:, config].mean(0))
        torch.testing.assert_close(attention(x)[:, config], x[:, config] * gate)


def test_a_block_normalises_over_the_nodes_of_each_configuration() -> None:
    block = Block(16)
    x = torch.randn(6, 3, 8)
    torch.testing.assert_close(block(3 * x + 5), block(x), atol=1e-3, rtol=1e-3)


def test_the_score_depends_on_the_configurations_beside_it_but_not_on_their_order() -> None:
    torch.manual_seed(0)
    graph = make_layout_graph(1, configs=8)
    inputs, net = TGraphSettings(width=16).build(0).prepare(graph), TGraph(16)
    order = np.array([3, 0, 2, 1])
    together = net.score_batch([inputs], np.arange(4)[:, None])[:, 0]
    torch.testing.assert_close(net.score_batch([inputs], order[:, None])[:, 0], together[order])
    fewer = net.score_batch([inputs], np.arange(2)[:, None])[:, 0]
    assert not torch.allclose(fewer, together[:2], atol=1e-4)
    assert len(graph.distinct.first) == len(net.score_graph(inputs))


def test_without_attention_across_configurations_each_is_scored_by_itself() -> None:
    torch.manual_seed(0)
    ranker = TGraphSettings(width=16, across=False).build(0)
    inputs, net = ranker.prepare(make_layout_graph(1, configs=8)), ranker.make_net()
    assert isinstance(net.blocks[0].configs, nn.Identity)
    together = net.score_batch([inputs], np.arange(4)[:, None])[:, 0]
    alone = [net.score_batch([inputs], np.array([[place]]))[0, 0] for place in range(4)]
    torch.testing.assert_close(torch.stack(alone), together, atol=1e-5, rtol=1e-4)
