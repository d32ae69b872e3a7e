"""The mechanisms of TGraph against their formulas."""

import numpy as np
import torch
from torch import nn

from solution.papers.tgraph import (
    Block,
    ChannelAttention,
    ConfigAttention,
    TGraph,
    TGraphSettings,
)
from tests.made.graphs import make_layout_graph


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
    ranker = TGraphSettings(width=16).build(0)
    inputs, net = ranker.prepare(graph), TGraph(16)
    order = np.array([3, 0, 2, 1])
    together = net.score_batch([inputs], np.arange(4)[:, None])[:, 0]
    torch.testing.assert_close(net.score_batch([inputs], order[:, None])[:, 0], together[order])
    fewer = net.score_batch([inputs], np.arange(2)[:, None])[:, 0]
    assert not torch.allclose(fewer, together[:2], atol=1e-4)
    assert len(graph.distinct.first) == len(net.score_graph(inputs))


def test_without_attention_across_configurations_each_is_scored_by_itself() -> None:
    torch.manual_seed(0)
    inputs = TGraphSettings(width=16).build(0).prepare(make_layout_graph(1, configs=8))
    net = TGraph(16, across=False)
    together = net.score_batch([inputs], np.arange(4)[:, None])[:, 0]
    alone = [net.score_batch([inputs], np.array([[place]]))[0, 0] for place in range(4)]
    torch.testing.assert_close(torch.stack(alone), together, atol=1e-5, rtol=1e-4)
    assert isinstance(
        TGraphSettings(across=False).build(0).make_net().blocks[0].configs, nn.Identity
    )
