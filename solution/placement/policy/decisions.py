"""Convert the policy's actions to decisions and back; repair decisions that overfill a device."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import MEMORY
from solution.placement.policy.network import PolicyChoice
from solution.placement.simulation.decision import PRIORITY_LEVELS, Decision

TRIES = 12  # maximum number of evaluations of a decision and its repairs
PARTS = ("placement", "priorities", "fusion")  # fields of a Decision


def make_decision(base: Decision, choices: dict[str, PolicyChoice], index: int) -> Decision:
    """Return the policy's decision number `index`; tasks not in `choices` stay as in `base`."""
    actions = {task: choice.actions[index].numpy() for task, choice in choices.items()}
    return Decision(
        actions.get("placement", base.placement),
        actions.get("schedule", base.priorities).astype(np.float64),
        actions.get("fusion", base.fusion),
    )


def find_actions(graph: CostGraph, decision: Decision) -> dict[str, Tensor]:
    """Return the decision as actions (1, nodes) int64 by task: device, priority or fusion level."""
    actions = {
        "placement": decision.placement[graph.leaders],
        "schedule": find_levels(graph, decision.priorities),
        "fusion": decision.fusion,
    }
    return {
        task: torch.from_numpy(values.astype(np.int64))[None] for task, values in actions.items()
    }


def find_fixed(evaluator: Evaluator) -> dict[str, Tensor]:
    """Return, for the tasks that are not decided, the base decision as actions (1, nodes)."""
    actions = find_actions(evaluator.graph, evaluator.base)
    return {task: values for task, values in actions.items() if task not in evaluator.tasks}


def find_levels(graph: CostGraph, priorities: np.ndarray) -> np.ndarray:
    """Quantise priorities into PRIORITY_LEVELS levels (nodes,) of about equally many nodes. Nodes
    that run no kernel get level 0."""
    decided = graph.decides_priority
    levels = np.zeros(graph.num_nodes, np.int64)
    _, ranks = np.unique(priorities[decided], return_inverse=True)
    positions = np.argsort(np.argsort(ranks, kind="stable"))
    # level = floor(PRIORITY_LEVELS * rank / nodes); nodes of equal priority share their mean rank
    mean = np.bincount(ranks, positions) / np.maximum(np.bincount(ranks), 1)
    levels[decided] = (mean[ranks] * PRIORITY_LEVELS / max(decided.sum(), 1)).astype(np.int64)
    return levels


def evaluate_repaired(
    evaluator: Evaluator, decision: Decision, most: int = TRIES
) -> tuple[Decision, float]:
    """Evaluate a decision; while a device is overfull, move nodes off it and evaluate again, with
    at most `most` evaluations. Return the decision evaluated last, and its seconds.

    A repair moves nodes from the most overfull device to the roomiest: the last nodes in
    topological order that hold about the excess. Without the task placement nothing is repaired.
    """
    decision = evaluator.keep_fixed(decision)
    tries = most if "placement" in evaluator.tasks else 1
    outcome = evaluator.judge(decision)
    for _ in range(tries - 1):
        if outcome.reason is None:
            break
        decision = _move(evaluator, decision, outcome.peak_bytes)
        outcome = evaluator.judge(decision)
    return decision, evaluator.price(outcome)


def _move(evaluator: Evaluator, decision: Decision, peak: np.ndarray) -> Decision:
    graph, limits = evaluator.graph, evaluator.machine.table[:, MEMORY]
    worst, roomiest = int((peak - limits).argmax()), int((limits - peak).argmax())
    placement = decision.placement[graph.leaders]
    nodes = np.flatnonzero((placement == worst) & graph.decides_device)
    weight = np.bincount(graph.leaders, graph.resident_bytes + graph.output_bytes)
    # bytes to move = 1.05 * (1 - limit / peak) * bytes of all nodes of the device, last nodes first
    held = np.cumsum(weight[nodes][::-1])
    excess = 1.05 * (peak[worst] - limits[worst]) / peak[worst] * held[-1]
    placement[nodes[::-1][: np.searchsorted(held, excess) + 1]] = roomiest
    return dataclasses.replace(decision, placement=placement[graph.leaders])


def pack_decision(prefix: str, decision: Decision) -> dict[str, Tensor]:
    """Return the decision as tensors for a checkpoint."""
    return {f"{prefix}{part}": torch.from_numpy(getattr(decision, part)) for part in PARTS}


def unpack_decision(prefix: str, tensors: Mapping[str, Tensor]) -> Decision | None:
    """Return the decision that `pack_decision` packed; None if the checkpoint has none."""
    if f"{prefix}{PARTS[0]}" not in tensors:
        return None
    return Decision(*(tensors[f"{prefix}{part}"].numpy() for part in PARTS))
