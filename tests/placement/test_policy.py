"""The policy network and its training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import Columns, CostGraph, build_cost_graph
from solution.placement.machine import make_machine
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.layers import Agreement, GraphSage, Modulation, SegmentAttention
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, Update
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_edges, make_graph

SMALL = PolicySettings(width=32, embedding_layers=2, attention_layers=1, heads=4, segment=16,
                       inner=64, rounds=2)  # fmt: skip


def make_policy(settings: PolicySettings = SMALL, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    return Policy(settings).eval()


def test_renumbered_nodes_have_the_same_chances() -> None:
    columns, edges = make_columns(50, 5), make_edges(50, 5)
    shuffle = np.random.default_rng(0).permutation(50)
    moved = Columns(*(column[shuffle] for column in columns))
    policy = make_policy()
    chances = []
    for graph in (build_cost_graph("a", columns, edges),
                  build_cost_graph("b", moved, np.argsort(shuffle)[edges])):  # fmt: skip
        found = policy(find_inputs(graph), 4)
        chances.append({task: choice.log_chances[0].exp() for task, choice in found.items()})
    for task in SMALL.tasks:
        assert torch.equal(chances[0][task], chances[1][task])


def test_a_division_in_two_is_another_than_in_four() -> None:
    """Not only that the parts which are not there are left out."""
    policy, inputs = make_policy(), find_inputs(make_graph(30, 2))
    two, four = (policy(inputs, devices)["placement"].log_chances[0] for devices in (2, 4))
    assert not torch.allclose(two[:, :2], four[:, :2].log_softmax(dim=1), atol=1e-4)


@pytest.mark.parametrize(("attention", "sees"), [("none", False), ("lstm", True)])
def test_without_attention_a_node_sees_others_through_an_lstm_or_not(
    attention: str, sees: bool
) -> None:
    policy = make_policy(replace(SMALL, attention=attention, topology="none", rounds=1,
                                 modulation="none", agreement=0))  # fmt: skip
    inputs = find_inputs(make_graph(40, 1))
    columns = inputs.columns.clone()
    columns[3] += 1
    first, other = (
        policy(own, 3)["placement"].log_chances[0, :, :3]
        for own in (inputs, replace(inputs, columns=columns))
    )
    moved = (first != other).any(dim=1)
    assert moved[3] and moved[np.arange(40) != 3].any() == sees


def test_a_network_that_is_not_known_is_refused_by_name() -> None:
    for wrong in ({"attention": "full"}, {"topology": "gcn"}, {"modulation": "edge"},
                  {"tasks": ("fusion", "place")}):  # fmt: skip
        with pytest.raises(InputError, match=next(iter(wrong))):
            replace(SMALL, **wrong)
    with pytest.raises(InputError, match="ratio"):
        TrainingSettings(ratio="edge")


def test_one_segment_is_full_attention() -> None:
    torch.manual_seed(0)
    layer = SegmentAttention(16, 4, 32, 100, memory=True).eval()
    nodes = torch.randn(1, 40, 16)
    rows = layer.before(nodes)
    query, (key, value) = layer.query(rows), layer.key_value(rows).chunk(2, dim=-1)
    heads = []
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        scores = query[0, :, part] @ key[0, :, part].T / 2.0  # the root of 16 / 4
        heads.append(scores.softmax(dim=1) @ value[0, :, part])
    changed = nodes + layer.output(torch.cat(heads, dim=1))
    expected = changed + layer.inner(layer.behind(changed))
    torch.testing.assert_close(layer(nodes), expected, atol=1e-5, rtol=1e-5)


def test_a_segment_sees_the_one_before_without_a_gradient() -> None:
    torch.manual_seed(0)
    layer = SegmentAttention(16, 4, 32, 10, memory=True).eval()
    nodes = torch.randn(1, 35, 16, requires_grad=True)
    found = layer(nodes)
    found[0, 12].sum().backward()
    gradient = nodes.grad
    assert gradient is not None
    assert (gradient[0, :10] == 0).all() and (gradient[0, 10:20] != 0).any()
    moved = nodes.detach().clone()
    moved[0, 3, 0] += 1
    changed = (layer(moved) - found).abs().sum(dim=2)[0] > 1e-6
    assert changed[10:20].all() and not changed[20:].any()


def test_chunks_of_segments_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = SegmentAttention(16, 4, 32, 10, memory=True).eval()
    nodes = torch.randn(2, 95, 16)
    with_gradient = layer(nodes)
    monkeypatch.setattr("solution.placement.policy.layers.CHUNK", 3)
    with torch.no_grad():
        torch.testing.assert_close(layer(nodes), with_gradient, atol=1e-6, rtol=1e-5)


def test_sage_takes_the_highest_message_of_neighbours() -> None:
    torch.manual_seed(0)
    layer, nodes = GraphSage(8), torch.randn(4, 8)
    edges = torch.tensor([[0, 0, 1], [1, 2, 0]])  # node 3 has no neighbours
    sent = torch.sigmoid(layer.message(nodes))
    heard = torch.stack([torch.maximum(sent[1], sent[2]), sent[0], torch.zeros(8), torch.zeros(8)])
    expected = torch.relu(layer.join(torch.cat([nodes, heard], dim=1)))
    torch.testing.assert_close(layer(nodes, edges), expected)


def test_modulation_without_weights_is_a_half() -> None:
    modulation = Modulation(8, "graph")
    for parameter in modulation.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(modulation(torch.randn(5, 8)), torch.full((1, 8), 0.5))


def test_devices_that_are_not_there_are_never_chosen() -> None:
    inputs = find_inputs(make_graph(60, 1))
    drawn = make_policy()(inputs, 3, 20, generator=torch.Generator().manual_seed(0))
    assert set(drawn["placement"].actions.unique().tolist()) == {0, 1, 2}
    assert torch.isfinite(drawn["placement"].entropy()).all()


def test_later_tasks_are_told_what_earlier_ones_decided() -> None:
    inputs = find_inputs(make_graph(40, 1))
    policy = make_policy()
    given = {task: torch.zeros(1, 40, dtype=torch.long) for task in SMALL.tasks}
    first = policy(inputs, 2, given=given)["placement"].log_chances
    given["fusion"] = torch.full((1, 40), 7)
    assert not torch.equal(first, policy(inputs, 2, given=given)["placement"].log_chances)


def test_ratios_start_at_one() -> None:
    """What was drawn has the same chances when it is given back."""
    inputs, policy = find_inputs(make_graph(40, 1)), make_policy()
    drawn = policy(inputs, 3, 4, generator=torch.Generator().manual_seed(1))
    again = policy(inputs, 3, 4, {task: choice.actions for task, choice in drawn.items()})
    for task, choice in drawn.items():
        ratio = (again[task].of_actions() - choice.of_actions()).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-5, rtol=1e-5)


def make_halves() -> CostGraph:
    """Two chains that do not know of each other, one of much more work than the other."""
    count = 8
    columns = make_columns(count, 0)._replace(
        fusion_kinds=np.zeros(count, np.uint8),
        operations=np.repeat([2e9, 1e9], count // 2) + np.arange(count),
        output_bytes=np.full(count, 1e5),
        resident_bytes=np.zeros(count),
        opcodes=np.repeat([5, 9], count // 2).astype(np.uint8),
    )
    edges = [(node, node - 1) for node in range(1, count) if node != count // 2]
    return build_cost_graph("halves", columns, np.array(edges))


def test_ppo_solves_a_graph_whose_best_split_is_known() -> None:
    """The longer chain on the faster device, the shorter one on the other."""
    graph = make_halves()
    evaluator = Evaluator(Environment(graph, make_machine(2, "v100+p100")), ("placement",))
    policy = make_policy(replace(SMALL, tasks=("placement",), rounds=1))
    settings = TrainingSettings(updates=60, samples=16, learning_rate=3e-3, entropy=0.0)
    updates: list[Update] = []
    Trainer(policy, [evaluator], settings).train(updates.append)
    learned = policy(find_inputs(graph), 2)["placement"].actions[0].numpy()
    assert (learned == (graph.opcodes == 9)).all()
    assert updates[-1].mean_reward > updates[0].mean_reward + 0.05


@pytest.mark.parametrize("change", [{"ratio": "graph"}, {"ratio": "node"},
                                    {"clip": 0.0, "epochs": 1}, {"repair": False}])  # fmt: skip
def test_every_setting_of_the_training_learns(change: dict[str, object]) -> None:
    evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
    policy = make_policy()
    before = [parameter.clone() for parameter in policy.parameters()]
    settings = TrainingSettings(updates=2, samples=4, **change)  # type: ignore[arg-type]
    Trainer(policy, [evaluator], settings).train()
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert len(evaluator.curve) == 8 and all(torch.isfinite(p).all() for p in policy.parameters())


@pytest.mark.parametrize("change", [{"topology": "none"}, {"memory": False}, {"rounds": 1},
                                    {"modulation": "none"}, {"modulation": "node"},
                                    {"tasks": ("schedule", "placement")}])  # fmt: skip
def test_every_setting_of_the_network_decides(change: dict[str, object]) -> None:
    policy = make_policy(replace(SMALL, **change))  # type: ignore[arg-type]
    found = policy(find_inputs(make_graph(40, 3)), 2, 2, generator=torch.Generator())
    assert set(found) == set(policy.settings.tasks)
    assert all(choice.actions.shape == (2, 40) for choice in found.values())


def test_a_training_that_was_stopped_ends_with_the_same_policy(tmp_path: Path) -> None:
    settings = TrainingSettings(updates=4, samples=4, learning_rate=1e-3)

    def start() -> Trainer:
        evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
        return Trainer(make_policy(), [evaluator], settings)

    whole = start()
    whole.train()
    stopped = start()
    stopped.update()
    stopped.update()
    stopped.save(tmp_path)
    resumed = start()
    resumed.train(folder=tmp_path)
    assert resumed.evaluators[0].curve == whole.evaluators[0].curve
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("learns", [True, False])
def test_neighbours_agree_as_a_slow_mean_field_does(learns: bool) -> None:
    """Of one strength while it learns; where it decides, more often, and the last one is firm."""
    torch.manual_seed(0)
    inputs, layer = find_inputs(make_graph(20, 1, tied=True)), Agreement(3).train(learns)
    logits = torch.randn(2, 20, 4)
    logits[:, :, 3] = -torch.inf
    found = layer(logits, inputs.votes)
    strength = nn.functional.softplus(layer.strength)
    expected = logits
    for times in [1, 1, 1] if learns else [1 + 3 * sweep / 8 for sweep in range(9)]:
        chances = expected.softmax(dim=2)
        expected = logits.clone()
        for to, of, weight in zip(*map(torch.Tensor.tolist, inputs.votes), strict=True):
            expected[:, to] += times * strength * weight * chances[:, of]
    assert torch.allclose(found, expected, atol=1e-5)
    assert (found[:, :, 3] == -torch.inf).all()
    sums = torch.zeros(20).index_add(0, inputs.votes.to, inputs.votes.weights)
    assert torch.allclose(sums[sums > 0], torch.ones(1))
    assert torch.equal(Agreement(0)(logits, inputs.votes), logits)


def test_a_stray_follows_its_neighbours() -> None:
    """Two chains that are for a device each, but one node: its own wish is for the other's."""
    graph = make_halves()
    chains = torch.from_numpy(graph.opcodes == 9).long()
    stray = int((chains == 0).nonzero()[1])
    logits = 3.0 * nn.functional.one_hot(chains, 2)[None].float()
    logits[0, stray] = torch.tensor([0.0, 2.0])
    layer, votes = Agreement(8), find_inputs(graph).votes
    assert layer(logits, votes).argmax(dim=2)[0, stray] == 1
    assert torch.equal(layer.eval()(logits, votes).argmax(dim=2)[0], chains)
