"""The residual net against its report's formulas, worked by hand or in slow loops."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from solution.models.nets.convolutions import both_ways
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.node_subsets import NodeInputs, NodeSettings, layout_numbers, prepare_nodes
from solution.papers.residual import (
    LeakyMlp,
    ResidualBody,
    ResidualLayer,
    ResidualNet,
    ResidualSettings,
    ResidualTile,
    ResidualTileSettings,
    normalise_edges,
    penalise,
)
from solution.papers.tpugraphs import (
    JoinedGcnBlock,
    TpuGraphs,
    TpuGraphsSettings,
    inverse_root_degrees,
    prepare_kernel,
)
from tests.made.graphs import make_layout_graph, make_tile_graph

CONFIGS = np.arange(4)
LAYOUTS = [make_layout_graph(seed, configs=60, name=f"program_{seed}") for seed in range(4)]


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def mlp(net: LeakyMlp, x: np.ndarray) -> np.ndarray:
    first, _, last = net
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    w1, b1, w2, b2 = (p.detach().numpy() for layer in (first, last) for p in layer.parameters())
    return leaky(x @ w1.T + b1) @ w2.T + b2


def spread(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """D^-1/2 (A + I) D^-1/2 of edges in both directions."""
    adjacency = np.eye(num_nodes)
    for source, target in edges.T:
        adjacency[source, target] = adjacency[target, source] = 1
    root = adjacency.sum(axis=1) ** -0.5
    return root[:, None] * adjacency * root


def test_edges_are_normalised_as_a_library_does() -> None:
    """Also one that stands twice, and a loop."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 1], [1, 0, 2, 1, 2, 1, 2]])
    expected = to_dense_adj(*_entries(*gcn_norm(edges, num_nodes=5)))
    assert torch.allclose(to_dense_adj(*_entries(*normalise_edges(edges, 5))), expected)


def _entries(places: Tensor, weights: Tensor | None) -> tuple[Tensor, None, Tensor | None]:
    return places, None, weights


def test_a_layer_is_an_mlp_then_messages_then_leaky_relu_and_its_input_added() -> None:
    torch.manual_seed(0)
    layer, x, told = ResidualLayer(4, 3), torch.randn(5, 2, 4), torch.randn(5, 2, 3)
    edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])  # node 4 is isolated
    body = ResidualBody(4, 3, 1, attention=False)
    body.layers[0].load_state_dict(layer.state_dict())
    found = body(x, told, edge_index).detach().numpy()
    matrix = spread(edge_index.numpy(), 5)
    for config in range(2):
        own = x[:, config].numpy()
        sent = mlp(layer.mlp, np.concatenate([own, told[:, config].numpy()], axis=1))
        np.testing.assert_allclose(found[:, config], own + leaky(matrix @ sent), atol=1e-5)


def test_the_whole_net_is_its_picture() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(LAYOUTS[0], NodeSettings())
    net = ResidualNet(ResidualSettings(width=8, rounds=2, nodes=NodeSettings())).eval()
    matrix = spread(inputs.edge_index.numpy(), len(inputs.opcodes))
    given = layout_numbers(inputs, CONFIGS)
    rows = leaky(net.rows(inputs, given).detach().numpy())
    layouts = np.zeros((*rows.shape[:2], 18))
    layouts[inputs.configurable.numpy()] = given.numpy()
    for config in range(len(CONFIGS)):
        x = rows[:, config]
        weights = np.exp(x @ x.T)
        x = weights / weights.sum(axis=1, keepdims=True) @ x
        for layer in net.body.layers:
            assert isinstance(layer, ResidualLayer)
            told = np.concatenate([x, layouts[:, config]], axis=1)
            x = x + leaky(matrix @ mlp(layer.mlp, told))
        expected = mlp(net.readout, x.mean(axis=0))[0]
        assert net.score_graph(inputs)[config] == pytest.approx(expected, abs=1e-4)


def test_the_l2_term_is_of_all_weights_of_mlps_and_of_what_is_pooled() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))  # squares: 6
        net[2].weight.copy_(torch.tensor([[3.0, 0.0]]))  # 9
        net[0].bias.fill_(100)
    pooled = torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])  # (2 configs, 1 graph, 2): 5 and 9
    assert penalise(net, pooled).item() == pytest.approx(6 + 9 + 7)


@pytest.mark.parametrize("attention", [True, False])
def test_nodes_and_edges_are_dropped_while_training_only(attention: bool) -> None:
    torch.manual_seed(0)
    few = NodeSettings(trained=5)
    net = ResidualNet(ResidualSettings(width=8, attention=attention, nodes=few))
    whole = ResidualNet(ResidualSettings(width=8, attention=attention, nodes=NodeSettings()))
    whole.load_state_dict(net.state_dict())
    inputs = prepare_nodes(LAYOUTS[1], few)
    configs = CONFIGS[:, None]
    drawn = {round(net.train().score_batch([inputs], configs)[0, 0].item(), 5) for _ in range(9)}
    assert len(drawn) > 1
    np.testing.assert_array_equal(net.score_graph(inputs), whole.score_graph(inputs))


def test_a_tile_joins_every_node_of_its_kernel() -> None:
    torch.manual_seed(0)
    net = ResidualTile(ResidualTileSettings(width=8, attention=False)).eval()
    kernel = prepare_kernel(make_tile_graph(0))
    matrix = spread(kernel.edge_index.numpy(), len(kernel.opcodes))
    numbers = kernel.configs[0].numpy()
    told = np.repeat(numbers[None], len(kernel.opcodes), axis=0)
    parts = [net.opcode(kernel.opcodes).detach().numpy(), kernel.numeric.numpy(), told]
    x = leaky(mlp(net.node, np.concatenate(parts, axis=1)))
    for layer in net.body.layers:
        assert isinstance(layer, ResidualLayer)
        x = x + leaky(matrix @ mlp(layer.mlp, np.concatenate([x, told], axis=1)))
    expected = mlp(net.readout, x.mean(axis=0))[0]
    assert net.score_graph(kernel)[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_step_of_more_graphs_than_fit_in_memory_has_the_same_penalty() -> None:
    """A step is divided where its graphs are large; the term must count once, not for each part."""
    from solution.models.nets import training_loop

    def fit() -> dict[str, Tensor]:
        training = TrainingSettings(
            loss="list_mle", optimizer="adam", epochs=2, patience=None, configs_per_graph=8
        )
        nodes = NodeSettings()
        settings = ResidualSettings(width=8, edges=1.0, l2=0.1, nodes=nodes, training=training)
        ranker = settings.build(0).fit(LAYOUTS, [])
        assert ranker.net_ is not None
        return ranker.net_.state_dict()

    whole = fit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "MAX_VALUES", 1)
        parts = fit()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, atol=2e-3, rtol=1e-2)


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
