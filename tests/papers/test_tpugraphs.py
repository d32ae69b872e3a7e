"""The mechanisms of the baselines of TpuGraphs against slow references."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from solution.models.nets.convolutions import GcnBlock, both_ways
from solution.papers.joined_blocks import (
    JoinedBlock,
    JoinedGcnBlock,
    inverse_root_degrees,
)
from solution.papers.nodes import NodeInputs, NodeSettings, prepare_nodes
from solution.papers.tpugraphs import (
    TpuGraphs,
    TpuGraphsSettings,
    cut_segment,
    draw_segment,
)
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings, prepare_kernel
from tests.made.graphs import make_layout_graph, make_tile_graph

CONFIGS = np.arange(4)


def _net_and_inputs(block: str) -> tuple[TpuGraphs, NodeInputs]:
    torch.manual_seed(0)
    net = TpuGraphs(TpuGraphsSettings(width=8, block=block))
    return net, prepare_nodes(make_layout_graph(1), NodeSettings())


def _gradients(net: TpuGraphs, encoded: Tensor) -> list[Tensor | None]:
    net.zero_grad()
    (encoded * torch.linspace(-1, 1, encoded.numel()).view_as(encoded)).sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in net.parameters()]


def _assert_same_gradients(left: list[Tensor | None], right: list[Tensor | None]) -> None:
    assert any(gradient is not None for gradient in left)
    for one, other in zip(left, right, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("block", ["sage", "gcn"])
def test_the_gradient_through_all_nodes_is_that_of_the_whole_graph(block: str) -> None:
    net, inputs = _net_and_inputs(block)
    edges = both_ways(inputs.edge_index)
    whole = _gradients(net, net.encode(inputs, CONFIGS, edges))
    everything = torch.arange(len(inputs.opcodes))
    _assert_same_gradients(_gradients(net, net.encode(inputs, CONFIGS, edges, everything)), whole)


@pytest.mark.parametrize("block", ["sage", "gcn"])
def test_outside_the_segment_every_node_is_a_constant_in_every_layer(block: str) -> None:
    net, inputs = _net_and_inputs(block)
    edges, segment = both_ways(inputs.edge_index), torch.tensor([4, 5, 6])
    inside = torch.zeros(len(inputs.opcodes), 1, 1, dtype=torch.bool)
    inside[segment] = True
    given = inputs.given(CONFIGS) / 6
    layouts = torch.zeros(len(inputs.opcodes), *given.shape[1:])
    layouts[inputs.configurable] = given
    x = net.rows(inputs, given)
    x = torch.where(inside, x, x.detach())
    scale = inverse_root_degrees(edges, len(x))
    for layer in net.blocks:
        x = layer(x, layouts, edges, len(x), scale)
        x = torch.where(inside, x, x.detach())
    found = net.encode(inputs, CONFIGS, edges, segment)
    torch.testing.assert_close(found, x)
    torch.testing.assert_close(found, net.encode(inputs, CONFIGS, edges))
    _assert_same_gradients(_gradients(net, found), _gradients(net, x))


def test_a_training_step_uses_a_segment_and_predicting_does_not() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(make_layout_graph(1), NodeSettings())
    net = TpuGraphs(TpuGraphsSettings(width=8, segment=3))
    gradients = set()
    for _ in range(20):
        net.train().zero_grad()
        net.score_batch([inputs], CONFIGS[:, None]).sum().backward()
        assert net.rows.node.weight.grad is not None
        gradients.add(round(float(net.rows.node.weight.grad.abs().sum()), 4))
    assert len(gradients) == 3  # one for each segment
    trained = net.score_batch([inputs], CONFIGS[:, None])[:, 0]
    np.testing.assert_allclose(net.score_graph(inputs)[:4], trained.detach(), atol=1e-5)


def test_the_segments_divide_the_graph() -> None:
    torch.manual_seed(0)
    drawn = {tuple(draw_segment(8, 3).tolist()) for _ in range(50)}
    assert drawn == {(0, 1, 2), (3, 4, 5), (6, 7)}


def test_a_segment_hears_its_neighbours() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    sources, local = cut_segment(edges, torch.tensor([1, 2]), 4)
    assert sources.tolist() == [1, 2, 0]
    assert sorted(local.T.tolist()) == [[0, 1], [2, 0]]  # 1 to 2, 0 to 1


def test_a_block_hears_rows_and_layouts_of_its_neighbours() -> None:
    torch.manual_seed(0)
    block, x, layouts = JoinedBlock(4), torch.randn(5, 3, 4), torch.randn(5, 3, 18)
    edges = [(0, 1), (2, 1), (1, 2), (4, 0)]  # nobody sends to 3 and 4
    joined, convolution = torch.cat([x, layouts], dim=-1), block.convolution
    found = block(x, layouts, torch.tensor(edges).T, 5, torch.ones(5))
    for node in range(5):
        received = [joined[source] for source, target in edges if target == node]
        mean = torch.stack(received).mean(0) if received else torch.zeros(3, 22)
        message = convolution.lin_l(mean) + convolution.lin_r(joined[node])
        expected = x[node] + functional.gelu(block.norm(message))
        torch.testing.assert_close(found[node], expected)


def test_a_graph_convolution_on_layouts_is_its_formula() -> None:
    torch.manual_seed(0)
    block, x, layouts = JoinedGcnBlock(4), torch.randn(5, 3, 4), torch.randn(5, 3, 18)
    torch.nn.init.normal_(block.bias)
    edges = both_ways(torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]]))  # node 4 is isolated
    adjacency = torch.eye(5)
    adjacency[edges[0], edges[1]] = 1
    scale = adjacency.sum(dim=1) ** -0.5
    torch.testing.assert_close(inverse_root_degrees(edges, 5), scale)
    normalised = scale[:, None] * adjacency * scale
    found = block(x, layouts, edges, 5, scale)
    joined = torch.cat([x, layouts], dim=-1)
    for config in range(3):
        message = normalised @ joined[:, config] @ block.product.weight.T + block.bias
        expected = x[:, config] + functional.gelu(block.norm(message))
        torch.testing.assert_close(found[:, config], expected)


def test_a_graph_convolution_is_its_formula_in_every_configuration() -> None:
    torch.manual_seed(0)
    block, x = GcnBlock(4), torch.randn(5, 3, 4)
    edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    adjacency = torch.eye(5)
    adjacency[edge_index[0], edge_index[1]] = adjacency[edge_index[1], edge_index[0]] = 1
    scale = adjacency.sum(dim=1) ** -0.5
    normalised = scale[:, None] * adjacency * scale
    found = block(x, edge_index)
    convolution = block.convolution
    for config in range(3):
        product = normalised @ x[:, config] @ convolution.lin.weight.T + convolution.bias
        expected = x[:, config] + functional.gelu(block.norm(product))
        torch.testing.assert_close(found[:, config], expected)
        torch.testing.assert_close(block(x[:, config], edge_index), expected)


@pytest.mark.parametrize("join", ["late", "early"])
@pytest.mark.parametrize("block", [None, "gcn", "sage"])
def test_kernels_and_configurations_are_scored_alike_together_and_alone(
    block: str | None, join: str
) -> None:
    torch.manual_seed(0)
    net = TpuGraphsTileSettings(width=8, block=block, join=join).build(0).make_net().eval()
    kernels = [prepare_kernel(make_tile_graph(seed)) for seed in range(3)]
    configs = np.array([[0, 1, 2], [3, 0, 1]])
    together = net.score_batch(kernels, configs)
    for row, column in np.ndindex(*configs.shape):
        alone = net.score_batch([kernels[column]], configs[[row]][:, [column]])
        torch.testing.assert_close(alone[0, 0], together[row, column], atol=1e-5, rtol=1e-4)
        of_graph = net.score_graph(kernels[column])[configs[row, column]]
        assert of_graph == pytest.approx(together[row, column].item(), abs=1e-5)
