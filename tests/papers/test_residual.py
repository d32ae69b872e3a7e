"""The residual net against its report's formulas, and which nodes published nets look at."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from solution.models.nets import training_loop
from solution.models.nets.convolutions import both_ways
from solution.models.nets.training_settings import TrainingSettings
from solution.papers import residual, tpugraphs
from solution.papers.node_subsets import (
    NodeRows,
    NodeSettings,
    choose_at_random,
    choose_by_contents,
    hash_nodes,
    layout_numbers,
    prepare_nodes,
)
from tests.made.graphs import make_layout_graph, make_tile_graph, renumber_nodes

CONFIGS = np.arange(4)
LAYOUTS = [make_layout_graph(seed, configs=60, name=f"program_{seed}") for seed in range(4)]


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def mlp(net: residual.LeakyMlp, x: np.ndarray) -> np.ndarray:
    first, _, last = net
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
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
    weighted = (residual.normalise_edges(edges, 5), gcn_norm(edges, num_nodes=5))
    assert torch.allclose(*(to_dense_adj(places, edge_attr=w) for places, w in weighted))


def test_the_whole_net_is_its_picture() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(LAYOUTS[0], NodeSettings())
    settings = residual.ResidualSettings(width=8, rounds=2, nodes=NodeSettings())
    net = residual.ResidualNet(settings).eval()
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
            assert isinstance(layer, residual.ResidualLayer)
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
    assert residual.penalise(net, pooled).item() == pytest.approx(6 + 9 + 7)


@pytest.mark.parametrize("attention", [True, False])
def test_nodes_and_edges_are_dropped_while_training_only(attention: bool) -> None:
    torch.manual_seed(0)
    few = NodeSettings(trained=5)
    settings = residual.ResidualSettings(width=8, attention=attention, nodes=few)
    net = residual.ResidualNet(settings)
    whole = residual.ResidualNet(dataclasses.replace(settings, nodes=NodeSettings()))
    whole.load_state_dict(net.state_dict())
    inputs = prepare_nodes(LAYOUTS[1], few)
    configs = CONFIGS[:, None]
    drawn = {round(net.train().score_batch([inputs], configs)[0, 0].item(), 5) for _ in range(9)}
    assert len(drawn) > 1
    np.testing.assert_array_equal(net.score_graph(inputs), whole.score_graph(inputs))


def test_a_tile_joins_every_node_of_its_kernel() -> None:
    torch.manual_seed(0)
    net = residual.ResidualTile(residual.ResidualTileSettings(width=8, attention=False)).eval()
    kernel = tpugraphs.prepare_kernel(make_tile_graph(0))
    matrix = spread(kernel.edge_index.numpy(), len(kernel.opcodes))
    numbers = kernel.configs[0].numpy()
    told = np.repeat(numbers[None], len(kernel.opcodes), axis=0)
    parts = [net.opcode(kernel.opcodes).detach().numpy(), kernel.numeric.numpy(), told]
    x = leaky(mlp(net.node, np.concatenate(parts, axis=1)))
    for layer in net.body.layers:
        assert isinstance(layer, residual.ResidualLayer)
        x = x + leaky(matrix @ mlp(layer.mlp, np.concatenate([x, told], axis=1)))
    expected = mlp(net.readout, x.mean(axis=0))[0]
    assert net.score_graph(kernel)[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_divided_step_has_the_same_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is divided where its graphs are large; the term must count once, not for each part."""
    training = TrainingSettings(
        loss="list_mle", optimizer="adam", epochs=2, patience=None, configs_per_graph=8
    )
    nodes = NodeSettings()
    settings = residual.ResidualSettings(width=8, edges=1.0, l2=0.1, nodes=nodes, training=training)
    whole = settings.build(0).fit(LAYOUTS, []).net_
    monkeypatch.setattr(training_loop, "MAX_VALUES", 1)
    parts = settings.build(0).fit(LAYOUTS, []).net_
    assert whole is not None and parts is not None
    torch.testing.assert_close(parts.state_dict(), whole.state_dict(), atol=2e-3, rtol=1e-2)


def _assert_same_gradients(net: tpugraphs.TpuGraphs, one: Tensor, other: Tensor) -> None:
    """Of all parameters that take part, which are the same ones for both encodings."""
    found = []
    for encoded in (one, other):
        total = (encoded * torch.linspace(-1, 1, encoded.numel()).view_as(encoded)).sum()
        gradients = torch.autograd.grad(total, list(net.parameters()), allow_unused=True)
        found.append({place: g for place, g in enumerate(gradients) if g is not None})
    assert found[0]
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("block", ["sage", "gcn"])
def test_outside_the_segment_every_node_is_a_constant_in_every_layer(block: str) -> None:
    """Through all nodes the gradient is that of the whole graph."""
    torch.manual_seed(0)
    net = tpugraphs.TpuGraphs(tpugraphs.TpuGraphsSettings(width=8, block=block))
    inputs = prepare_nodes(make_layout_graph(1), NodeSettings())
    edges, segment = both_ways(inputs.edge_index), torch.tensor([4, 5, 6])
    encoded = net.encode(inputs, CONFIGS, edges)
    everything = net.encode(inputs, CONFIGS, edges, torch.arange(len(inputs.opcodes)))
    _assert_same_gradients(net, everything, encoded)
    inside = torch.zeros(len(inputs.opcodes), 1, 1, dtype=torch.bool)
    inside[segment] = True
    given = inputs.given(CONFIGS) / 6
    layouts = torch.zeros(len(inputs.opcodes), *given.shape[1:])
    layouts[inputs.configurable] = given
    x = net.rows(inputs, given)
    x = torch.where(inside, x, x.detach())
    scale = tpugraphs.inverse_root_degrees(edges, len(x))
    for layer in net.blocks:
        x = layer(x, layouts, edges, len(x), scale)
        x = torch.where(inside, x, x.detach())
    found = net.encode(inputs, CONFIGS, edges, segment)
    torch.testing.assert_close(found, x)
    torch.testing.assert_close(found, encoded)
    _assert_same_gradients(net, found, x)


def test_a_training_step_uses_a_segment_and_predicting_does_not() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(make_layout_graph(1), NodeSettings())
    net = tpugraphs.TpuGraphs(tpugraphs.TpuGraphsSettings(width=8, segment=3))
    gradients, weight = set(), net.rows.node.weight
    for _ in range(20):
        scores = net.train().score_batch([inputs], CONFIGS[:, None])
        (gradient,) = torch.autograd.grad(scores.sum(), weight)
        gradients.add(round(float(gradient.abs().sum()), 4))
    assert len(gradients) == 3  # one for each segment
    trained = net.score_batch([inputs], CONFIGS[:, None])[:, 0]
    np.testing.assert_allclose(net.score_graph(inputs)[:4], trained.detach(), atol=1e-5)


def test_a_graph_convolution_on_layouts_is_its_formula() -> None:
    torch.manual_seed(0)
    block, x, layouts = tpugraphs.JoinedGcnBlock(4), torch.randn(5, 3, 4), torch.randn(5, 3, 18)
    torch.nn.init.normal_(block.bias)
    edges = both_ways(torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]]))  # node 4 is isolated
    adjacency = torch.eye(5)
    adjacency[edges[0], edges[1]] = 1
    scale = adjacency.sum(dim=1) ** -0.5
    torch.testing.assert_close(tpugraphs.inverse_root_degrees(edges, 5), scale)
    normalised = scale[:, None] * adjacency * scale
    found = block(x, layouts, edges, 5, scale)
    joined = torch.cat([x, layouts], dim=-1)
    for config in range(3):
        message = normalised @ joined[:, config] @ block.product.weight.T + block.bias
        expected = x[:, config] + functional.gelu(block.norm(message))
        torch.testing.assert_close(found[:, config], expected)


NOBODY = np.zeros(6, bool)
LAYOUT = make_layout_graph(0)  # edges to operands 2-0 2-1 4-2 4-3 5-4 6-5 7-6


def test_nodes_that_look_alike_come_together_and_what_does_not_fit_is_passed_over() -> None:
    keys = np.array([5, 5, 1, 2, 2, 2], np.uint64)
    assert choose_by_contents(keys, 3, NOBODY).tolist() == [0, 1, 2]
    assert choose_by_contents(keys, 4, NOBODY).tolist() == [2, 3, 4, 5]
    preferred = np.array([True, False, False, False, False, False])
    assert choose_by_contents(keys, 2, preferred).tolist() == [0, 2]


@settings(max_examples=25, deadline=None)
@given(num_nodes=st.integers(2, 50), share=st.floats(0.1, 0.9), seed=st.integers(0, 1000))
def test_of_random_nodes_the_preferred_come_first(num_nodes: int, share: float, seed: int) -> None:
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
    whole = prepare_nodes(LAYOUT, NodeSettings())
    part = whole.keep(torch.tensor([2, 4, 6, 7]))
    assert part.edge_index.T.tolist() == [[0, 1], [2, 3]]  # 2 to 4, 6 to 7
    assert part.configurable.tolist() == [0, 3]  # 2 and 7, but not 5
    configs = np.array([3, 1, 4])
    torch.testing.assert_close(part.given(configs), whole.given(configs)[[0, 2]])
    again = part.keep(torch.tensor([3]))
    torch.testing.assert_close(again.given(configs), whole.given(configs)[[2]])


def test_a_row_is_the_product_of_everything_that_is_known_of_a_node() -> None:
    torch.manual_seed(0)
    inputs = prepare_nodes(LAYOUT, NodeSettings())
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
    drawn = {}
    for draw in ("evenly", "work"):
        nodes = NodeSettings(trained=2, draw=draw)
        net = tpugraphs.TpuGraphs(tpugraphs.TpuGraphsSettings(width=8, nodes=nodes))
        inputs = prepare_nodes(LAYOUT, nodes)
        assert inputs.work[2] == inputs.work.max()  # the dot
        torch.manual_seed(0)
        taken = [net.train().take(inputs).keys for _ in range(200)]
        drawn[draw] = np.mean([inputs.keys[2] in keys for keys in taken])
    assert drawn["work"] > drawn["evenly"] + 0.3


@pytest.mark.parametrize(
    ("nodes", "trained", "scored", "hops"),
    [
        (NodeSettings(), 8, 8, None),
        (NodeSettings(trained=5, scored=3), 5, 3, None),
        (NodeSettings(trained=5), 5, 8, None),
        (NodeSettings(pruning="neighbourhood", hops=0), 3, 3, 0),
        (NodeSettings(pruning="neighbourhood", hops=0, trained=2), 2, 3, 0),
    ],
)
def test_pruned_or_drawn(nodes: NodeSettings, trained: int, scored: int, hops: int | None) -> None:
    settings, inputs = (
        tpugraphs.TpuGraphsSettings(width=8, nodes=nodes),
        prepare_nodes(LAYOUT, nodes),
    )
    net = tpugraphs.TpuGraphs(settings)
    assert len(net.train().take(inputs).opcodes) == trained
    assert len(net.eval().take(inputs).opcodes) == scored
    assert settings.needed_hops == hops
