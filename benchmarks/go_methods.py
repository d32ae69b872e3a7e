"""The compared methods by name: each spends `budget` evaluations and the evaluator keeps the best.

Every method, GO's or another's, gets the same number of simulated decisions.

Scratch trains untrained networks by PPO on one graph: GO-one, and the tasks jointly or separately.
The GO paper has one network for all tasks and never shows that this is better than one per task.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from benchmarks.go_cpsat import solve
from benchmarks.go_hdp import place_hierarchically
from solution.placement.baselines.annealing import anneal, find_starts
from solution.placement.baselines.divisions import (
    decide_placement,
    decide_tensorflow,
    divide_as_a_person,
    divide_by_metis,
)
from solution.placement.baselines.lists import list_decisions
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.graphs.workloads import Workload
from solution.placement.machine import Machine
from solution.placement.optimize import decide_at_once, optimize
from solution.placement.policy.decisions import TRIES, evaluate_repaired
from solution.placement.policy.network import Policy
from solution.placement.policy.policy_settings import (
    FINE_TUNING_RATE,
    PolicySettings,
    PolicyTraining,
)
from solution.placement.policy.ppo import Trainer, make_policy
from solution.placement.simulation.decision import (
    FUSION_LEVELS,
    PRIORITY_LEVELS,
    Decision,
    default_decision,
)
from solution.system.errors import InputError

SAMPLES = 16
FINE_TUNING = 50  # maximum number of updates
POPULATION, PARENTS, MUTATED = 32, 3, 2  # decisions; size of a tournament; nodes mutated per child
LEARNED = 2  # GO-one trains with 1 / LEARNED of the evaluations and searches with the rest


@dataclass(frozen=True)
class Scratch:
    """Methods that begin with an untrained network, on one evaluator.

    Attributes:
        network: settings; its tasks are replaced by the evaluator's.
        training: settings; the number of updates follows from the budget.
    """

    network: PolicySettings
    training: PolicyTraining

    def learn(self, evaluator: Evaluator, budget: int, seed: int) -> Policy:
        """Return a network trained until the evaluator has counted at most `budget` decisions."""
        torch.manual_seed(seed)
        network = replace(self.network, tasks=order_tasks(evaluator.tasks))
        policy = make_policy(network, [evaluator])
        learn_more(policy, evaluator, self.training, budget, seed)
        return policy.eval()

    def learn_and_search(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Run GO-one: train on this graph alone, then search with the trained policy."""
        policy = self.learn(evaluator, budget // LEARNED, seed)
        optimize(evaluator, policy, budget, seed)

    def learn_briefly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Train for as many updates as fine-tuning, then evaluate the likeliest decision."""
        policy = self.learn(evaluator, min(budget - 1, FINE_TUNING * SAMPLES), seed)
        decide_at_last(evaluator, policy, budget, seed)

    def decide_jointly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Train one network for all tasks, then evaluate its likeliest decision."""
        decide_at_last(evaluator, self.learn(evaluator, budget - 1, seed), budget, seed)

    def decide_singly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Train a network per task, the others at defaults; evaluate all results together."""
        found, share = evaluator.base, (budget - 1) // len(evaluator.tasks)
        for task in order_tasks(evaluator.tasks) if share else ():
            alone = self._decide_alone(evaluator, task, evaluator.base, share, seed)
            found = alone.keep_beside(found)
        left = budget - len(evaluator.curve)
        evaluate_repaired(evaluator, found, min(TRIES, left))

    def decide_in_turn(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Train a network per task, in turn, each given the decisions of the ones before."""
        found, tasks = evaluator.base, order_tasks(evaluator.tasks)
        for number, task in enumerate(tasks):
            share = (budget - len(evaluator.curve)) // (len(tasks) - number)
            if share:
                alone = self._decide_alone(evaluator, task, found, share, seed)
                found = alone.keep_beside(found)

    def _decide_alone(
        self, evaluator: Evaluator, task: str, base: Decision, budget: int, seed: int
    ) -> Evaluator:
        alone = evaluator.ask((task,), base)
        self.decide_jointly(alone, budget, seed)
        evaluator.count(alone)
        return alone


def decide_at_last(evaluator: Evaluator, policy: Policy, budget: int, seed: int) -> None:
    """Evaluate the policy's likeliest decision if any budget is left."""
    if left := budget - len(evaluator.curve):
        decide_at_once(evaluator, policy, seed, min(TRIES, left))


def learn_more(
    policy: Policy, evaluator: Evaluator, training: PolicyTraining, budget: int, seed: int
) -> None:
    """Train by PPO for as many whole updates as `budget` evaluations allow."""
    settings = replace(training, updates=budget // SAMPLES, samples=SAMPLES, seed=seed)
    Trainer(policy, [evaluator], settings, budget).train()


def order_tasks(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tasks in the order in which the policy decides them."""
    return tuple(task for task in TASKS if task in tasks)


Method = Callable[[Evaluator, int, int], object]  # evaluator, budget, seed; the result is unused
SOLVING = 60.0  # seconds


@dataclass(frozen=True)
class Protocols:
    """All methods for one workload.

    Attributes:
        policy: the generalised, pretrained policy.
        scratch: settings of GO-one; fine-tuning uses them with another learning rate.
    """

    workload: Workload
    policy: Policy
    scratch: Scratch

    def methods(self) -> dict[str, Method]:
        """Return the methods by name, in the order of the tables."""
        return {
            "go-one": self.scratch.learn_and_search,
            "go": lambda evaluator, budget, seed: optimize(evaluator, self.policy, budget, seed),
            "zero-shot": lambda evaluator, budget, seed: decide_at_once(
                evaluator, self.policy, seed, min(TRIES, budget)),
            "fine-tuned": self.fine_tune,
            "from scratch": self.scratch.learn_briefly,
            "joint": self.scratch.decide_jointly,
            "single": self.scratch.decide_singly,
            "sequential": self.scratch.decide_in_turn,
            "heuristics and search": lambda evaluator, budget, seed: optimize(
                evaluator, None, budget, seed),
            "human": self.divide,
            "metis": lambda evaluator, *_: evaluator.evaluate(decide_placement(
                evaluator.graph, divide_by_metis(evaluator.graph, evaluator.machine),
                fused="fusion" in evaluator.tasks)),
            "hdp": place_hierarchically,
            "annealing": anneal,
            "annealing 10 times": lambda evaluator, budget, seed: anneal(evaluator, 10 * budget,
                                                                          seed),
            "genetic": breed,
            "random": search_at_random,
            "one device": lambda evaluator, *_: evaluator.evaluate(
                default_decision(evaluator.graph)),
            "tensorflow": lambda evaluator, *_: evaluator.evaluate(
                decide_tensorflow(evaluator.graph)),
            **{name: partial(_list_by, name) for name in ("heft", "cpop", "m-etf", "m-sct")},
            "cp-sat": _solve,
        }  # fmt: skip

    def fine_tune(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Evaluate the pretrained policy's likeliest decision, fine-tune, and evaluate the new one.

        Fine-tuning has at most 50 updates. It begins where zero-shot ends, so it is never worse.
        """
        decide_at_once(evaluator, self.policy, seed, min(TRIES, budget))
        policy = copy.deepcopy(self.policy).train()
        # The learning rate for training from scratch would make the policy forget.
        training = replace(self.scratch.training, learning_rate=FINE_TUNING_RATE)
        most = len(evaluator.curve) + FINE_TUNING * SAMPLES
        learn_more(policy, evaluator, training, min(budget - 1, most), seed)
        decide_at_last(evaluator, policy.eval(), budget, seed)

    def divide(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """Partition as a person would: by layers, or into parts with equal costs of cells."""
        part = divide_as_a_person(evaluator.graph, evaluator.machine, by_cost=self.workload.by_cost)
        fused = "fusion" in evaluator.tasks
        evaluator.evaluate(decide_placement(evaluator.graph, part, fused=fused))


def _list_by(name: str, evaluator: Evaluator, *_: int) -> None:
    fused = "fusion" in evaluator.tasks
    evaluator.evaluate(list_decisions(evaluator.graph, evaluator.machine, fused=fused)[name])


def _solve(evaluator: Evaluator, *_: int) -> None:
    """Evaluate HEFT's decision, then CP-SAT's, which starts from it; keep the bound it proves.

    Raises InputError if ortools is not installed or if fusion is decided.
    """
    if "fusion" in evaluator.tasks:
        raise InputError("CP-SAT's model has no fusion. Choose the tasks placement and schedule.")
    environment = evaluator.environment
    heft = list_decisions(evaluator.graph, evaluator.machine, fused=False)["heft"]
    evaluator.evaluate(heft)
    found = solve(environment, SOLVING, start=heft)
    evaluator.evaluate(found.decision)
    evaluator.bound = max(evaluator.bound, found.bound)


def decide_at_random(graph: CostGraph, machine: Machine, random: np.random.Generator) -> Decision:
    """Return a decision drawn uniformly from all actions."""
    count = graph.num_nodes
    return Decision(
        random.integers(0, len(machine), count),
        random.integers(0, PRIORITY_LEVELS, count).astype(np.float64),
        random.integers(0, FUSION_LEVELS, count),
    )


def search_at_random(evaluator: Evaluator, budget: int, seed: int) -> None:
    """Evaluate `budget` decisions drawn uniformly from all actions."""
    random = np.random.default_rng(seed)
    for _ in range(budget):
        evaluator.evaluate(decide_at_random(evaluator.graph, evaluator.machine, random))


def breed(evaluator: Evaluator, budget: int, seed: int) -> None:
    """Run a genetic algorithm.

    The first population is `find_starts` and their children. Then parents are chosen by tournaments
    of three; a child takes a run of nodes from one parent and the rest from the other, and two of
    its nodes, on average, are mutated.
    """
    random = np.random.default_rng(seed)
    people = find_starts(evaluator)[: max(budget, 1)]
    first = min(POPULATION, budget) - len(people)
    people += [_mutate(evaluator, people[one % len(people)], random) for one in range(first)]
    costs = [evaluator.evaluate(one) for one in people]
    for _ in range(budget - len(people)):
        pair = []
        for _ in range(2):
            rivals = random.integers(len(people), size=PARENTS)
            pair.append(people[min(rivals, key=costs.__getitem__)])
        child = _mutate(evaluator, _cross(pair[0], pair[1], random), random)
        cost = evaluator.evaluate(child)
        worst = int(np.argmax(costs))
        if cost < costs[worst]:
            people[worst], costs[worst] = child, cost


def _cross(one: Decision, other: Decision, random: np.random.Generator) -> Decision:
    """Take a run of nodes in topological order from `one`, the rest from `other`.

    Most neighbours stay together.
    """
    count = len(one.placement)
    first, last = sorted(random.integers(0, count + 1, 2))
    positions = np.arange(count)
    return _mix(one, other, (positions >= first) & (positions < last))


def _mutate(evaluator: Evaluator, decision: Decision, random: np.random.Generator) -> Decision:
    drawn = decide_at_random(evaluator.graph, evaluator.machine, random)
    count = evaluator.graph.num_nodes
    return _mix(drawn, decision, random.random(count) < MUTATED / count)


def _mix(one: Decision, other: Decision, where: np.ndarray) -> Decision:
    """Return the decision of `one` if `where` is true, else of `other`, for every node."""
    return Decision(
        np.where(where, one.placement, other.placement),
        np.where(where, one.priorities, other.priorities),
        np.where(where, one.fusion, other.fusion),
    )
