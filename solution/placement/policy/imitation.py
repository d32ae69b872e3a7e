"""Begin with what searches found: the policy learns their decisions by cross-entropy, then by PPO.

Ours, after DOPPLER (2026): PPO from scratch ends with everything on one device, for every cut that
is not clean is worse than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Policy
from solution.placement.simulation.decision import PRIORITY_LEVELS, Decision


@dataclass(frozen=True, eq=False)
class Lesson:
    """A graph, and a decision of it that is good."""

    evaluator: Evaluator
    actions: dict[str, Tensor]  # (1, nodes) int64 a task


def make_lesson(evaluator: Evaluator, decision: Decision) -> Lesson:
    """The decision as actions. Devices that are alike are called by the order of their nodes."""
    graph = evaluator.graph
    placement = decision.placement[graph.leaders]
    if len(set(evaluator.machine.devices)) == 1:
        placement = rename_devices(placement)
    actions = {
        "placement": placement,
        "schedule": find_levels(graph, decision.priorities),
        "fusion": decision.fusion,
    }
    return Lesson(evaluator, {t: torch.from_numpy(a.astype(np.int64))[None]
                              for t, a in actions.items() if t in evaluator.tasks})  # fmt: skip


def rename_devices(placement: np.ndarray) -> np.ndarray:
    """The same division, with devices called in the order in which they appear."""
    _, first, inverse = np.unique(placement, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def find_levels(graph: CostGraph, priorities: np.ndarray) -> np.ndarray:
    """Priorities as levels, with equally many nodes at each."""
    own = graph.decides_priority
    levels = np.zeros(graph.num_nodes, np.int64)
    _, ranks = np.unique(priorities[own], return_inverse=True)
    places = np.argsort(np.argsort(ranks, kind="stable"))
    # Nodes of one priority share a level: the mean of their places decides it.
    mean = np.bincount(ranks, places) / np.maximum(np.bincount(ranks), 1)
    levels[own] = (mean[ranks] * PRIORITY_LEVELS / max(own.sum(), 1)).astype(np.int64)
    return levels


def imitate(
    policy: Policy, lessons: Sequence[Lesson], steps: int, learning_rate: float, seed: int = 0
) -> list[float]:
    """Learn the lessons in turn, in an order drawn anew each time; the losses."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    random = np.random.default_rng(seed)
    losses: list[float] = []
    order: list[int] = []
    for _ in range(steps):
        if not order:
            order = random.permutation(len(lessons)).tolist()
        lesson = lessons[order.pop()]
        inputs = find_inputs(lesson.evaluator.graph)
        choices = policy(inputs, len(lesson.evaluator.machine), 1, lesson.actions)
        parts = [-choice.of_actions()[:, inputs.decides[task]].mean()
                 for task, choice in choices.items() if inputs.decides[task].any()]  # fmt: skip
        loss = torch.stack(parts).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses
