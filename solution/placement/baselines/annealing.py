"""Simulated annealing: change a decision at random; accept a slower one less and less often."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solution.placement.evaluation import SHORTEST, Evaluator
from solution.placement.simulation.decision import FUSION_LEVELS, PRIORITY_LEVELS, Decision

# First and last temperature, as multiples of the start's seconds / nodes, which is about the effect
# of one action.
HOT, COLD = 0.3, 0.01


def change_one(evaluator: Evaluator, decision: Decision, random: np.random.Generator) -> Decision:
    """Return a copy of the decision in which one random node has another device, priority or fusion
    level. The task (placement, schedule or fusion) is drawn at random, too. If the task decides no
    node, or has only one action, nothing changes."""
    task = evaluator.tasks[random.integers(len(evaluator.tasks))]
    graph = evaluator.graph
    marks, values, actions = {
        "placement": (graph.decides_device, decision.placement, len(evaluator.machine)),
        "schedule": (graph.decides_priority, decision.priorities, PRIORITY_LEVELS),
        "fusion": (graph.decides_fusion, decision.fusion, FUSION_LEVELS),
    }[task]
    nodes = np.flatnonzero(marks)
    changed = values.copy()
    if len(nodes) and actions > 1:
        node = nodes[random.integers(len(nodes))]
        changed[node] = (int(changed[node]) + random.integers(1, actions)) % actions
    parts = {"placement": decision.placement, "schedule": decision.priorities,
             "fusion": decision.fusion, task: changed}  # fmt: skip
    return Decision(parts["placement"], parts["schedule"], parts["fusion"])


def find_starts(evaluator: Evaluator) -> list[Decision]:
    """Return the decisions from which searches start: `base` and, if fusion is decided, a copy of
    it with every legal fusion, as in TensorFlow."""
    base = evaluator.base
    if "fusion" not in evaluator.tasks:
        return [base]
    return [base, replace(base, fusion=np.ones_like(base.fusion))]


def anneal(
    evaluator: Evaluator,
    budget: int,
    seed: int,
    start: Decision | None = None,
    change: Callable[[Evaluator, Decision, np.random.Generator], Decision] = change_one,
    temperatures: tuple[float, float] | None = None,
) -> None:
    """Run simulated annealing with geometric cooling, for `budget` evaluations, but at least one;
    the result is `evaluator.best`. `start`: by default the best of `find_starts`. `change` returns
    a changed copy.

    `temperatures`: the first and the last temperature, as multiples of the start's seconds (or of
    the reference, if it is less); by default HOT and COLD divided by the number of nodes.
    """
    random = np.random.default_rng(seed)
    starts = find_starts(evaluator) if start is None else [evaluator.keep_fixed(start)]
    costs = [evaluator.evaluate(one) for one in starts[: max(budget, 1)]]
    cost = min(costs)
    current = starts[costs.index(cost)]
    share = 1 / evaluator.graph.num_nodes
    hot, cold = temperatures or (HOT * share, COLD * share)
    first = max(min(cost, evaluator.reference), SHORTEST)
    for step in range(len(costs), max(budget, 1)):
        proposed = change(evaluator, current, random)
        found = evaluator.evaluate(proposed)
        temperature = first * hot * (cold / hot) ** (step / budget)
        if found <= cost or random.random() < np.exp((cost - found) / temperature):
            current, cost = proposed, found
