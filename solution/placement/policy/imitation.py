"""Begin with what searches found: the policy learns their decisions by cross-entropy, then by PPO.

Ours, after DOPPLER (2026): PPO from scratch ends with everything on one device, for every cut that
is not clean is worse than that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn

from solution.placement.evaluation import Evaluator
from solution.placement.machine import Machine
from solution.placement.policy.decisions import find_actions, find_fixed
from solution.placement.policy.inputs import Inputs, find_inputs
from solution.placement.policy.network import Given, Policy
from solution.placement.policy.steps import (
    StepRunner,
    beside_the_default,
    make_optimizer,
    set_rate,
)
from solution.placement.simulation.decision import Decision
from solution.system.progress import track

EVEN, MOST = 0.3, 30.0  # of the weights of nodes: what all have; times the mean at most


@dataclass(frozen=True, eq=False)
class Lesson:
    """A graph, and a decision of it that is good."""

    evaluator: Evaluator
    inputs: Inputs
    names: Tensor  # (ways, devices) int64: how else those that are alike may be called
    actions: dict[str, Tensor]  # (1, nodes) int64 a task that is asked for
    fixed: dict[str, Tensor]  # (1, nodes) int64 a task that is not
    # (nodes,) float32 a task in which something is decided: how much a node's action counts. They
    # add up to 1; of the placement those of all nodes whose device is decided are above 0.
    weights: dict[str, Tensor]


def make_lesson(evaluator: Evaluator, decision: Decision) -> Lesson:
    """The decision as actions."""
    inputs = find_inputs(evaluator.graph)
    actions = find_actions(evaluator.graph, decision)
    marks = {task: own.float() for task, own in inputs.decides.items()}
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        marks["placement"] = torch.from_numpy(weigh_devices(evaluator, decision))
    taken = {task: own for task, own in actions.items() if task in evaluator.tasks}
    weights = {task: marks[task] / marks[task].sum() for task in taken if marks[task].any()}
    names = find_names(evaluator.machine)
    return Lesson(evaluator, inputs, names, taken, find_fixed(evaluator), weights)


@lru_cache
def find_names(machine: Machine) -> Tensor:
    """All ways (ways, devices) int64 to call the devices so that each stays of its kind.

    Of eight devices, as many as a policy knows, there are 40,320.
    """
    own = machine.devices
    ways = permutations(range(len(own)))
    return torch.tensor([way for way in ways if all(own[a] == own[b] for a, b in enumerate(way))])


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
    that every division is as good the other way round, and decides for neither. All ways are
    tried: that nobody waits for a GPU's answer is worth more than the least number of sums.

    Args:
        log_chances: (1, nodes, devices or more) of the policy.
    """
    devices, placement = lesson.names.shape[1], lesson.actions["placement"]
    if "placement" not in lesson.weights:
        return placement
    chances = log_chances.detach()[0, :, :devices].double()
    decided = (lesson.weights["placement"] > 0).double()
    parts = nn.functional.one_hot(placement[0], devices).double() * decided[:, None]
    called = parts.T @ chances  # of the nodes of each part, by each name
    cells = lesson.names + devices * torch.arange(devices, device=called.device)
    best = called.flatten()[cells].sum(dim=1).argmax(keepdim=True)
    return lesson.names.index_select(0, best)[0].index_select(0, placement[0])[None]


class Imitation:
    """Learns lessons in turn, in an order drawn anew each time.

    Attributes:
        done: steps so far.
        losses: of each of them, but of those since the last that was kept.
        optimizer: what is to be kept of it, beside the policy and these two, to go on.
    """

    def __init__(self, policy: Policy, steps: int, learning_rate: float, seed: int = 0) -> None:
        self.policy, self.steps, self.learning_rate, self.seed = policy, steps, learning_rate, seed
        self.optimizer = make_optimizer(policy, learning_rate)
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
        run = StepRunner(self.optimizer, partial(find_loss, self.policy))
        device = self.policy.mean.device
        moved = move_lessons(lessons, device)
        losses: list[Tensor] = []
        with (
            beside_the_default(device),
            track(range(self.done, self.steps), "Imitating") as turns,
        ):
            for step in turns:
                set_rate(self.optimizer, self._find_rate())
                losses.append(run(moved[order[step]]))
                self.done += 1
                if self.done % every == 0 or self.done == self.steps:
                    self.losses += torch.stack(losses).tolist()
                    losses.clear()
                    if keep is not None and self.done % every == 0:
                        keep()

    def _find_rate(self) -> float:
        return self.learning_rate * (1 + math.cos(math.pi * self.done / self.steps)) / 2


def draw_order(lessons: int, steps: int, seed: int) -> np.ndarray:
    """Which lesson in which step: (steps,) numbers; each once before any comes again."""
    random = np.random.default_rng(seed)
    rounds = [random.permutation(lessons) for _ in range(-(-steps // lessons))]
    return np.concatenate([np.zeros(0, np.int64), *rounds])[:steps]


def move_lessons(lessons: Sequence[Lesson], device: torch.device) -> list[Lesson]:
    """The same on another device; what lessons share stays shared."""
    inputs = {id(own): own.to(device) for own in (lesson.inputs for lesson in lessons)}
    names = {id(own): own.to(device) for own in (lesson.names for lesson in lessons)}
    return [
        Lesson(lesson.evaluator, inputs[id(lesson.inputs)], names[id(lesson.names)],
               *({task: own.to(device) for task, own in part.items()}
                 for part in (lesson.actions, lesson.fixed, lesson.weights)))
        for lesson in lessons
    ]  # fmt: skip


def find_loss(policy: Policy, lesson: Lesson) -> Tensor:
    """Cross-entropy of a node, summed over the tasks.

    Nothing in it asks a GPU for an answer, so that a step can be kept as one CUDA graph.
    """
    given: dict[str, Given] = dict(lesson.actions)
    if "placement" in given:
        given["placement"] = partial(call_as_the_policy, lesson)
    choices = policy(lesson.inputs, lesson.names.shape[1], 1, given, fixed=lesson.fixed)
    parts = [-choices[task].of_actions()[0] @ own for task, own in lesson.weights.items()]
    return torch.stack(parts).sum()
