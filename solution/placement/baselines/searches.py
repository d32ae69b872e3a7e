"""Searches that do not learn: at random, simulated annealing, a genetic algorithm."""

from collections.abc import Callable

import numpy as np

from solution.placement.baselines.divisions import decide_at_random
from solution.placement.evaluation import Evaluator
from solution.placement.simulation.decision import FUSION_LEVELS, PRIORITY_LEVELS, Decision

HOT, COLD = 0.1, 1e-4  # temperatures over the first cost: the document says cooling, no numbers
POPULATION, PARENTS, MUTATED = 32, 3, 0.02


def search_at_random(evaluator: Evaluator, budget: int, seed: int) -> None:
    """Every action of every node alike."""
    random = np.random.default_rng(seed)
    for _ in range(budget):
        evaluator.evaluate(decide_at_random(evaluator.graph, evaluator.machine, random))


def change_one(evaluator: Evaluator, decision: Decision, random: np.random.Generator) -> Decision:
    """One node's action of one of the tasks, drawn anew."""
    task = evaluator.tasks[random.integers(len(evaluator.tasks))]
    graph = evaluator.graph
    marks, values, actions = {
        "placement": (graph.decides_device, decision.placement, len(evaluator.machine)),
        "schedule": (graph.decides_priority, decision.priorities, PRIORITY_LEVELS),
        "fusion": (graph.decides_fusion, decision.fusion, FUSION_LEVELS),
    }[task]
    nodes = np.flatnonzero(marks)
    changed = values.copy()
    if len(nodes):
        changed[nodes[random.integers(len(nodes))]] = random.integers(actions)
    parts = {"placement": decision.placement, "schedule": decision.priorities,
             "fusion": decision.fusion, task: changed}  # fmt: skip
    return Decision(parts["placement"], parts["schedule"], parts["fusion"])


def anneal(
    evaluator: Evaluator,
    budget: int,
    seed: int,
    start: Decision | None = None,
    change: Callable[[Evaluator, Decision, np.random.Generator], Decision] = change_one,
    hot: float = HOT,
) -> None:
    """Simulated annealing with geometric cooling, from the default decision or another one."""
    random = np.random.default_rng(seed)
    current = evaluator.keep_fixed(start or evaluator.base)
    cost = evaluator.evaluate(current)
    first = min(cost, evaluator.reference)
    for step in range(1, max(budget, 1)):
        proposed = change(evaluator, current, random)
        found = evaluator.evaluate(proposed)
        temperature = first * hot * (COLD / hot) ** (step / budget)
        if found <= cost or random.random() < np.exp((cost - found) / temperature):
            current, cost = proposed, found


def breed(evaluator: Evaluator, budget: int, seed: int) -> None:
    """Genetic: tournaments of three, each node from either parent, a fiftieth drawn anew."""
    random = np.random.default_rng(seed)
    graph, machine = evaluator.graph, evaluator.machine
    people = [evaluator.base]
    people += [decide_at_random(graph, machine, random) for _ in range(min(POPULATION, budget) - 1)]
    costs = [evaluator.evaluate(one) for one in people]
    for _ in range(budget - len(people)):
        pair = []
        for _ in range(2):
            rivals = random.integers(len(people), size=PARENTS)
            pair.append(people[min(rivals, key=costs.__getitem__)])
        child = _cross(pair[0], pair[1], decide_at_random(graph, machine, random), random)
        cost = evaluator.evaluate(child)
        worst = int(np.argmax(costs))
        if cost < costs[worst]:
            people[worst], costs[worst] = child, cost


def _cross(
    one: Decision, other: Decision, drawn: Decision, random: np.random.Generator
) -> Decision:
    parts = []
    for mine, theirs, anew in zip(*(vars(d).values() for d in (one, other, drawn)), strict=True):
        child = np.where(random.random(len(mine)) < 0.5, mine, theirs)
        parts.append(np.where(random.random(len(mine)) < MUTATED, anew, child))
    return Decision(*parts)
