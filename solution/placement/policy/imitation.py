"""Begin with what searches found: the policy learns their decisions by cross-entropy, then by PPO.

Ours, after DOPPLER (2026): PPO from scratch ends with everything on one device, for every cut that
is not clean is worse than that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from solution.placement.evaluation import Evaluator
from solution.placement.policy.decisions import find_actions, find_fixed
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Given, Policy
from solution.placement.simulation.decision import Decision
from solution.system.progress import track

EVEN, MOST = 0.3, 30.0  # of the weights of nodes: what all have; times the mean at most


@dataclass(frozen=True, eq=False)
class Lesson:
    """A graph, and a decision of it that is good."""

    evaluator: Evaluator
    actions: dict[str, Tensor]  # (1, nodes) int64 a task that is asked for
    fixed: dict[str, Tensor]  # (1, nodes) int64 a task that is not
    weights: dict[str, Tensor]  # (nodes,) float32 a task: how much a node's action counts


def make_lesson(evaluator: Evaluator, decision: Decision) -> Lesson:
    """The decision as actions."""
    graph = evaluator.graph
    actions = find_actions(graph, decision)
    weights = {task: marks.float() for task, marks in find_inputs(graph).decides.items()}
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        weights["placement"] = torch.from_numpy(weigh_devices(evaluator, decision))
    taken = {task: own for task, own in actions.items() if task in evaluator.tasks}
    return Lesson(evaluator, taken, find_fixed(evaluator), weights)


def weigh_devices(evaluator: Evaluator, decision: Decision) -> np.ndarray:
    """Weights (nodes,) float32 of mean 1 over the nodes whose device is decided.

    EVEN of it goes to all alike, the rest by how much longer the step takes with the node alone on
    the next device: most nodes are light, and to have one heavy node astray may cost as much as the
    whole division gains.
    """
    graph, devices = evaluator.graph, len(evaluator.machine)
    nodes, runtime = np.flatnonzero(graph.decides_device), evaluator.environment.runtime
    placement, seconds = decision.placement[graph.leaders], runtime(decision).seconds
    losses = np.zeros(graph.num_nodes)
    for node in nodes:
        moved = placement.copy()
        moved[node] = (moved[node] + 1) % devices
        other = runtime(replace(decision, placement=moved[graph.leaders]))
        losses[node] = max(other.seconds / seconds - 1, 0)
    shares = losses / max(losses.sum(), 1e-30) * len(nodes)
    weights = np.where(graph.decides_device, EVEN + (1 - EVEN) * np.minimum(shares, MOST), 0)
    return (weights / weights[nodes].mean()).astype(np.float32)


def call_as_the_policy(lesson: Lesson, log_chances: Tensor) -> Tensor:
    """The devices (1, nodes), those that are alike called as the policy most likely calls them.

    Which of them is the first means nothing; a policy that is told the names of each lesson learns
    that every division is as good the other way round, and decides for neither.

    Args:
        log_chances: (1, nodes, devices or more) of the policy.
    """
    machine, decides = lesson.evaluator.machine, lesson.evaluator.graph.decides_device
    placement = lesson.actions["placement"]
    if len(set(machine.devices)) > 1:
        return placement
    chances = log_chances.detach()[0, :, : len(machine)].cpu().double().numpy()[decides]
    parts = np.eye(len(machine))[placement[0, decides]]
    _, names = linear_sum_assignment(parts.T @ chances, maximize=True)
    return torch.from_numpy(names)[placement]


class Imitation:
    """Learns lessons in turn, in an order drawn anew each time.

    Attributes:
        done: steps so far.
        losses: of each of them.
        optimizer: what is to be kept of it, beside the policy and these two, to go on.
    """

    def __init__(self, policy: Policy, steps: int, learning_rate: float, seed: int = 0) -> None:
        self.policy, self.steps, self.learning_rate, self.seed = policy, steps, learning_rate, seed
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
        self.done = 0
        self.losses: list[float] = []

    def learn(
        self, lessons: Sequence[Lesson], keep: Callable[[], None] | None = None, every: int = 500
    ) -> None:
        """Go on to the last step.

        Args:
            keep: called after each `every` steps.
        """
        order = draw_order(len(lessons), self.steps, self.seed)
        with track(range(self.done, self.steps), "Imitating") as turns:
            for step in turns:
                self._learn(lessons[order[step]])
                if keep is not None and self.done % every == 0:
                    keep()

    def _learn(self, lesson: Lesson) -> None:
        share = (1 + math.cos(math.pi * self.done / self.steps)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * share
        loss = find_loss(self.policy, lesson)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.done += 1


def draw_order(lessons: int, steps: int, seed: int) -> np.ndarray:
    """Which lesson in which step: (steps,) numbers; each once before any comes again."""
    random = np.random.default_rng(seed)
    rounds = [random.permutation(lessons) for _ in range(-(-steps // lessons))]
    return np.concatenate([np.zeros(0, np.int64), *rounds])[:steps]


def find_loss(policy: Policy, lesson: Lesson) -> Tensor:
    """Cross-entropy of a node, summed over the tasks."""
    inputs, devices = find_inputs(lesson.evaluator.graph), len(lesson.evaluator.machine)
    given: dict[str, Given] = dict(lesson.actions)
    if "placement" in given:
        given["placement"] = partial(call_as_the_policy, lesson)
    choices = policy(inputs, devices, 1, given, fixed=lesson.fixed)
    parts = [-(own := choice.of_actions()[0]) @ lesson.weights[task].to(own.device) / marks.sum()
             for task, choice in choices.items()
             if (marks := inputs.decides[task]).any()]  # fmt: skip
    return torch.stack(parts).sum()
