"""The residual net against its report's formulas, worked by hand or in slow loops."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from solution.domain.graph import Graph
from solution.models.nets.training_settings import TrainingSettings
from solution.models.sampling import choose_rows
from solution.papers.nodes import NodeSettings, layout_numbers, prepare_nodes
from solution.papers.residual_attention import TRAINING, ResidualNet, ResidualSettings
from solution.papers.residual_layers import (
    LeakyMlp,
    ResidualBody,
    ResidualLayer,
    attend_to_itself,
    drop_edges,
    normalise_edges,
    penalise,
)
from solution.papers.residual_tile import ResidualTile, ResidualTileSettings
from solution.papers.tpugraphs_tile import prepare_kernel
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


def test_attention_is_of_the_nodes_with_themselves_without_projections() -> None:
    """Two nodes (1, 0) and (0, 2): logits 1, 0 and 0, 4, so weights e/(e+1) and e^4/(1+e^4)."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])[:, None]
    first, second = np.e / (np.e + 1), np.e**4 / (1 + np.e**4)
    expected = [[first, 2 * (1 - first)], [1 - second, 2 * second]]
    torch.testing.assert_close(attend_to_itself(x)[:, 0], torch.tensor(expected))


def test_attention_of_many_nodes_is_its_formula_in_every_configuration() -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 3, 5)
    found = attend_to_itself(x)
    for config in range(3):
        rows = x[:, config]
        torch.testing.assert_close(found[:, config], torch.softmax(rows @ rows.T, dim=1) @ rows)


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


def test_attention_stands_before_the_convolutions() -> None:
    torch.manual_seed(0)
    x, told, edges = torch.randn(6, 2, 4), torch.randn(6, 2, 3), torch.tensor([[0, 1], [1, 2]])
    attending = ResidualBody(4, 3, 2, attention=True)
    plain = ResidualBody(4, 3, 2, attention=False)
    plain.load_state_dict(attending.state_dict())  # attention has no weights
    torch.testing.assert_close(attending(x, told, edges), plain(attend_to_itself(x), told, edges))
    behind = attend_to_itself(plain(x, told, edges))
    assert (attending(x, told, edges) - behind).abs().max() > 1e-2


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


def test_the_l2_term_reaches_the_weights_and_not_the_scores() -> None:
    def fit(l2: float) -> nn.Module:
        settings = ResidualSettings(width=8, l2=l2, training=dataclasses.replace(
            TRAINING, epochs=40, patience=None, learning_rate=0.01))  # fmt: skip
        ranker = settings.build(0).fit(LAYOUTS, [])
        assert ranker.net_ is not None
        return ranker.net_

    nothing = torch.zeros(1, 1, 1)
    assert penalise(fit(1.0), nothing) < 0.5 * penalise(fit(0.0), nothing)
    torch.manual_seed(0)
    net = ResidualNet(ResidualSettings(width=8, edges=1.0, l2=0.5, nodes=NodeSettings())).train()
    batch = [prepare_nodes(graph, NodeSettings()) for graph in LAYOUTS[:2]]
    configs = np.stack([CONFIGS, CONFIGS + 3], axis=1)
    scores, penalty = net.score_and_penalise(batch, configs)
    torch.testing.assert_close(scores, net.score_batch(batch, configs))
    pooled = [net.embed(inputs, configs[:, i]) for i, inputs in enumerate(batch)]
    torch.testing.assert_close(penalty, 0.5 * penalise(net, torch.stack(pooled, dim=1)))


def _change_runtimes(graph: Graph, rows: np.ndarray) -> Graph:
    assert graph.runtimes is not None
    runtimes = graph.runtimes.copy()
    runtimes[rows] = runtimes[rows][::-1] + 12345.0
    return dataclasses.replace(graph, runtimes=runtimes)


def test_at_most_20_configurations_of_a_graph_are_ever_learned_from() -> None:
    graph = LAYOUTS[0]
    learned = choose_rows(graph, 20, 0)
    assert len(learned.runtimes) == 20
    kept = {config.tobytes() for config in learned.graph.layouts.expand()}
    is_kept = np.array([config.tobytes() in kept for config in graph.layouts.expand()])
    assert 0 < is_kept.sum() < graph.num_configs

    def predict(learned: Graph) -> np.ndarray:
        ranker = ResidualSettings(width=8).build(0).fit([learned, LAYOUTS[1]], [])
        return ranker.predict(LAYOUTS[2])

    scores = predict(graph)
    others = _change_runtimes(graph, np.flatnonzero(~is_kept))
    np.testing.assert_array_equal(predict(others), scores)
    assert not np.array_equal(predict(_change_runtimes(graph, np.flatnonzero(is_kept))), scores)


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


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_edge_sampling_keeps_the_stated_share(share: float) -> None:
    edges = torch.stack([torch.arange(50), torch.arange(50) + 1])
    kept = drop_edges(edges, share)
    assert kept.shape[1] == round(share * 50)
    assert set(kept[0].tolist()) <= set(range(50))
    torch.testing.assert_close(kept[1], kept[0] + 1)
    assert sorted(kept[0].tolist()) == kept[0].tolist()


@pytest.mark.parametrize("attention", [True, False])
def test_kernels_are_scored_alike_together_and_alone(attention: bool) -> None:
    torch.manual_seed(0)
    net = ResidualTile(ResidualTileSettings(width=8, attention=attention)).eval()
    kernels = [prepare_kernel(make_tile_graph(seed)) for seed in range(3)]
    configs = np.array([[0, 1, 2], [3, 0, 1]])
    together = net.score_batch(kernels, configs)
    for row, column in np.ndindex(*configs.shape):
        of_graph = net.score_graph(kernels[column])[configs[row, column]]
        assert of_graph == pytest.approx(together[row, column].item(), abs=1e-5)


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
    from solution.models.nets import stepping

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
        patch.setattr(stepping, "MAX_VALUES", 1)
        parts = fit()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, atol=2e-3, rtol=1e-2)
