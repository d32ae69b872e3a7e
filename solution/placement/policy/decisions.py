"""From actions of the policy to decisions, and what mends those that do not fit the memory."""

import dataclasses

import numpy as np

from solution.placement.machine import Machine
from solution.placement.policy.network import Choice
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import MEMORY, Environment

TRIES = 12


def make_decision(base: Decision, choices: dict[str, Choice], place: int) -> Decision:
    """The decision of that place; a task that was not decided stays as in `base`."""
    actions = {task: choice.actions[place].numpy() for task, choice in choices.items()}
    return Decision(
        actions.get("placement", base.placement),
        actions.get("schedule", base.priorities).astype(np.float64),
        actions.get("fusion", base.fusion),
    )


def repair(environment: Environment, decision: Decision) -> Decision:
    """Move nodes off overfull devices until all fit, or give up after some tries.

    The nodes of the fullest device that come last hold their share of what is too much; they go to
    the device with most room.
    """
    for _ in range(TRIES):
        outcome = environment.runtime(decision)
        if outcome.reason is None:
            return decision
        decision = _move(environment.machine, environment, decision, outcome.peak_bytes)
    return decision


def _move(
    machine: Machine, environment: Environment, decision: Decision, peak: np.ndarray
) -> Decision:
    graph, limits = environment.graph, machine.table[:, MEMORY]
    worst, roomiest = int((peak - limits).argmax()), int((limits - peak).argmax())
    placement = decision.placement[graph.leaders]
    own = np.flatnonzero((placement == worst) & graph.decides_device)
    weight = np.bincount(graph.leaders, graph.resident_bytes + graph.output_bytes)
    held = np.cumsum(weight[own][::-1])
    excess = 1.05 * (peak[worst] - limits[worst]) / peak[worst] * held[-1]
    placement[own[::-1][: np.searchsorted(held, excess) + 1]] = roomiest
    return dataclasses.replace(decision, placement=placement[graph.leaders])
