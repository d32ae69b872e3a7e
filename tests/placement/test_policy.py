"""The policy network and its training."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import Columns, CostGraph, build_cost_graph
from solution.placement.machine import make_machine
from solution.placement.policy.decisions import find_levels
from solution.placement.policy.graph_inputs import find_inputs
from solution.placement.policy.imitation import Imitation, make_instance
from solution.placement.policy.network import Agreement, Policy, SegmentAttention
from solution.placement.policy.policy_settings import PolicySettings, PolicyTraining
from solution.placement.policy.ppo import Trainer, Update, find_gain
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_decision, make_edges, make_graph

SMALL = PolicySettings(width=32, embedding_layers=2, attention_layers=1, heads=4, segment=16,
                       inner=64, rounds=2)  # fmt: skip


def make_policy(settings: PolicySettings = SMALL, seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    return Policy(settings).eval()


def test_renumbered_nodes_have_the_same_chances() -> None:
    columns, edges = make_columns(50, 5), make_edges(50, 5)
    shuffle = np.random.default_rng(0).permutation(50)
    moved = Columns(*(column[shuffle] for column in columns))
    graphs = (build_cost_graph("a", columns, edges),
              build_cost_graph("b", moved, np.argsort(shuffle)[edges]))  # fmt: skip
    one, other = (make_policy()(find_inputs(graph), 4) for graph in graphs)
    for task in SMALL.tasks:
        assert torch.equal(one[task].log_chances[0].exp(), other[task].log_chances[0].exp())


def test_a_network_that_is_not_known_is_refused_by_name() -> None:
    for wrong in ({"attention": "full"}, {"topology": "gcn"}, {"modulation": "edge"},
                  {"tasks": ("fusion", "place")}):  # fmt: skip
        with pytest.raises(InputError, match=next(iter(wrong))):
            replace(SMALL, **wrong)
    with pytest.raises(InputError, match="ratio"):
        PolicyTraining(ratio="edge")


def test_a_segment_sees_the_one_before_without_a_gradient() -> None:
    torch.manual_seed(0)
    layer = SegmentAttention(16, 4, 32, 10, memory=True).eval()
    nodes = torch.randn(1, 35, 16, requires_grad=True)
    found = layer(nodes)
    (gradient,) = torch.autograd.grad(found[0, 12].sum(), nodes)
    assert (gradient[0, :10] == 0).all() and (gradient[0, 10:20] != 0).any()
    moved = nodes.detach().clone()
    moved[0, 3, 0] += 1
    changed = (layer(moved) - found).abs().sum(dim=2)[0] > 1e-6
    assert changed[10:20].all() and not changed[20:].any()


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
    settings = PolicyTraining(updates=60, samples=16, learning_rate=3e-3, entropy=0.0)
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
    settings = PolicyTraining(updates=2, samples=4, **change)  # type: ignore[arg-type]
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
    settings = PolicyTraining(updates=4, samples=4, learning_rate=1e-3)

    def start() -> Trainer:
        evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
        return Trainer(make_policy(), [evaluator], settings)

    whole, stopped, resumed = start(), start(), start()
    whole.train()
    stopped.update()
    stopped.update()
    stopped.save(tmp_path)
    resumed.resume(tmp_path)
    found, known = resumed.evaluators[0], stopped.evaluators[0]
    assert found.best is not None and known.best is not None and found.best_outcome is not None
    np.testing.assert_array_equal(found.best.placement, known.best.placement)
    assert found.best_outcome.seconds == found.seconds == known.seconds
    resumed.train(folder=tmp_path)
    assert found.curve == whole.evaluators[0].curve
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


CHANGE = [[0.3, -0.1, 0.5], [-0.4, 0.2, -0.7]]
ADVANTAGES = [1.5, -0.5]


def slow_gain(ratio: str, clip: float) -> float:
    gains = []
    for parts, advantage in zip(CHANGE, ADVANTAGES, strict=True):
        ratios = [math.exp(part) for part in parts]
        if ratio != "node":
            ratios = [math.prod(ratios) ** (1 if ratio == "graph" else 1 / len(parts))]
        for own in ratios:
            clipped = min(max(own, 1 - clip), 1 + clip) if clip else own
            gains.append(min(own * advantage, clipped * advantage))
    return sum(gains) / len(gains)


@pytest.mark.parametrize("clip", [0, 0.1, 0.4])
@pytest.mark.parametrize("ratio", ["mean", "graph", "node"])
def test_it_is_the_formula(ratio: str, clip: float) -> None:
    found = find_gain(torch.tensor(CHANGE), torch.tensor(ADVANTAGES), ratio, clip)
    assert found.item() == pytest.approx(slow_gain(ratio, clip))


def test_what_is_farther_than_the_clip_is_not_pushed_on() -> None:
    """A better decision gains up to 1 + clip, and no gradient is left beyond."""
    gradients = []
    for change in (0.05, 0.15, 0.3):
        own = torch.full((1, 4), change, requires_grad=True)
        gain = find_gain(own, torch.ones(1), "mean", 0.2)
        gradients.append(torch.autograd.grad(gain, own)[0].sum().item())
    assert gradients[0] < gradients[1] and gradients[2] == 0


def test_imitation_learns_a_decision() -> None:
    evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
    instance = make_instance(evaluator, make_decision(evaluator.graph, 2, 1))
    imitation = Imitation(make_policy(), 60, 3e-3)
    imitation.learn([instance])
    assert imitation.losses[-1] < 0.7 * imitation.losses[0]
    levels = find_levels(evaluator.graph, np.arange(30.0))
    assert levels.max() == 19 and (np.diff(levels[evaluator.graph.decides_priority]) >= 0).all()


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_policy_computes_where_it_is(rounds: int) -> None:
    """The device "meta" computes shapes only; like a GPU it refuses most of what is on the CPU."""
    policy = Policy(replace(SMALL, rounds=rounds)).to("meta")
    inputs = find_inputs(make_graph(99, 1))
    drawn = policy(inputs, 4, 2, generator=torch.Generator())
    own = {task: torch.zeros((2, 99), dtype=torch.int64) for task in SMALL.tasks[1:]}
    taken = policy(inputs, 4, 2, own, fixed={SMALL.tasks[0]: torch.zeros((1, 99)).long()})
    for choice in (*drawn.values(), *taken.values()):
        assert choice.actions.shape == (2, 99)
        assert choice.actions.is_meta and choice.of_actions().is_meta
