"""What PPO's steps follow, where a decision is of many nodes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from solution.placement.evaluation import Evaluator
from solution.placement.graphs.workloads import WORKLOADS
from solution.placement.machine import make_machine
from solution.placement.policy.network import Choice, Policy
from solution.placement.policy.ppo import Trainer, Update, make_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_graph

NET = PolicySettings(width=32, attention_layers=1, heads=4, inner=64, rounds=1)


def test_a_program_of_some_hundred_nodes_is_learned_from_scratch() -> None:
    """Random decisions take six times as long as one device; ten updates bring it below it."""
    graph = WORKLOADS["wavenet-2x3-small"].make()
    evaluator = Evaluator(Environment(graph, make_machine(4)))
    torch.manual_seed(0)
    policy = make_policy(NET, [evaluator])
    updates: list[Update] = []
    settings = TrainingSettings(updates=10, epochs=2, learning_rate=1e-3)
    Trainer(policy, [evaluator], settings).train(updates.append)
    assert updates[0].mean_reward < -2.4
    assert updates[-1].mean_reward > -1.3 and evaluator.seconds < evaluator.reference


@pytest.mark.parametrize(("ratio", "own"), [("mean", np.mean), ("graph", np.sum)])
def test_a_loss_is_what_its_formula_says(ratio: str, own: object) -> None:
    """Clipped a decision, by the mean or the sum of the logarithms of its nodes' ratios."""
    assert callable(own)
    evaluator = Evaluator(Environment(make_graph(9, 1), make_machine(2)), ("placement",))
    settings = TrainingSettings(updates=4, ratio=ratio)
    policy = Policy(replace(NET, tasks=("placement",)))
    trainer = Trainer(policy, [evaluator], settings)
    trainer.done = 1
    torch.manual_seed(1)
    chances, before = torch.randn(1, 4, 2).log_softmax(2), torch.randn(3, 4) / 5 - 0.7
    choice = Choice(torch.randint(0, 2, (3, 4)), chances)
    marks, advantages = torch.tensor([True, True, False, True]), torch.tensor([1.0, -1.2, 0.2])
    loss, entropy = trainer._find_loss(
        {"placement": choice}, {"placement": before}, {"placement": marks}, advantages
    )
    gains = []
    for actions, known, advantage in zip(choice.actions, before, advantages.tolist(), strict=True):
        change = [float(chances[0, node, actions[node]] - known[node]) for node in (0, 1, 3)]
        change = math.exp(own(change))
        gains.append(min(change * advantage, min(max(change, 0.8), 1.2) * advantage))
    spread = -(chances.exp() * chances).sum(2)[0, marks].mean()
    assert entropy == pytest.approx(float(spread), rel=1e-5)
    expected = -np.mean(gains) - 0.01 * 0.75 / math.sqrt(3) * float(spread)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
