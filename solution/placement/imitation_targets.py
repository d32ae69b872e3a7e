"""Find the decisions that the policy imitates: simplified best known decisions.

A training instance is a program on a machine, with the tasks to decide. `BestDecisions` searches
training instances and keeps the best decision of each. A search leaves arbitrary choices behind
that cost nothing: single nodes on other devices, twenty fusion levels where two would do. A policy
that imitates such choices learns noise, so `simplify` removes them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
import torch

from solution.placement.baselines.lists import find_priorities
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import Workload
from solution.placement.machine import make_machine
from solution.placement.optimize import find_seconds_at_once, optimize
from solution.placement.policy.imitation import TrainingInstance, make_instance
from solution.placement.policy.network import Policy
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.processes import open_pool
from solution.system.progress import track

DEVICES = (2, 4)
LEAST, NODES = 100, 1_000_000  # evaluations per search: at most max(LEAST, NODES / nodes of graph)
LOSS = 0.003  # maximum relative slowdown that `simplify` accepts
SWEEPS = 3  # maximum number of passes over all nodes in `simplify`


def make_evaluators(
    workloads: Sequence[Workload], tasks: tuple[str, ...] = TASKS, devices: Sequence[int] = DEVICES
) -> list[Evaluator]:
    """Return an evaluator of each workload on each number of devices in `devices`; if `devices` is
    empty, on the workload's default number."""
    return [
        Evaluator(Environment(graph, make_machine(number)), tasks)
        for workload in workloads
        for graph in [workload.make()]
        for number in devices or (workload.devices,)
    ]


@dataclass
class BestDecisions:
    """The best known decision of each training instance, simplified: at first the default decision,
    later the best that `search` finds. An instance without a valid decision (infinite `seconds`) is
    left out of training and comparison."""

    evaluators: Sequence[Evaluator]  # the training instances
    workers: int = 1  # number of processes that search; it does not change the results
    decisions: list[Decision] = field(init=False)
    seconds: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.decisions = [evaluator.base for evaluator in self.evaluators]
        self.seconds = [math.inf] * len(self.evaluators)
        for index, base in enumerate(self.decisions):
            self._keep(index, base)

    def search(self, policy: Policy | None, budget: int, seed: int) -> None:
        """Search each instance with at most `budget` evaluations, with a policy or none."""
        with track(range(len(self.evaluators)), "Searching") as indices:
            for decision, index in zip(self._find_all(policy, budget, seed), indices, strict=True):
                if decision is not None:
                    self._keep(index, decision)

    def _find_all(self, policy: Policy | None, budget: int, seed: int) -> Iterator[Decision | None]:
        budgets = [
            min(budget, max(LEAST, NODES // evaluator.graph.num_nodes))
            for evaluator in self.evaluators
        ]
        asked = self.evaluators, repeat(policy), budgets, repeat(seed)
        if self.workers == 1:
            yield from map(find_best, *asked)
            return
        with open_pool(self.workers, begin_searching) as pool:
            yield from pool.map(find_best, *asked)

    def _keep(self, index: int, decision: Decision) -> None:
        outcome = self.evaluators[index].environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds[index]:
            self.decisions[index], self.seconds[index] = decision, outcome.seconds

    def make_instances(self) -> list[TrainingInstance]:
        """Return a training instance for each evaluator whose best known decision is valid."""
        return [make_instance(evaluator, decision) for evaluator, decision, _ in self._find_known()]

    def compare(self, policy: Policy) -> float:
        """Return the geometric mean over instances of the ratio (seconds of the policy's likeliest
        decision) / (seconds of the best known decision)."""
        logs = [
            np.log(find_seconds_at_once(evaluator, policy) / best)
            for evaluator, _, best in self._find_known()
        ]
        return float(np.exp(np.mean(logs)))

    def _find_known(self) -> Iterator[tuple[Evaluator, Decision, float]]:
        every = zip(self.evaluators, self.decisions, self.seconds, strict=True)
        return (known for known in every if known[2] < math.inf)


def begin_searching() -> None:
    """Limit torch to one thread in a worker, because each worker has one core."""
    torch.set_num_threads(1)


def find_best(
    evaluator: Evaluator, policy: Policy | None, budget: int, seed: int
) -> Decision | None:
    """Search with `budget` evaluations; return the best valid decision, simplified, or None."""
    asked = evaluator.start_again()
    optimize(asked, policy, budget, seed)
    return None if asked.best is None else simplify(evaluator, asked.best)


def simplify(evaluator: Evaluator, decision: Decision) -> Decision:
    """Return a simpler decision, slower by at most the share LOSS. If this limit allows it, fused
    nodes get one fusion level, priorities become longest paths to the end (or else equal), and
    nodes move to the device of most of their neighbours."""
    environment = evaluator.environment
    limit = environment.runtime(decision).seconds * (1 + LOSS)

    def is_as_good(other: Decision) -> bool:
        outcome = environment.runtime(other)
        return outcome.reason is None and outcome.seconds <= limit

    for simpler in (_fuse_alike, _rank_alike):
        found = (evaluator.keep_fixed(one) for one in simpler(evaluator, decision))
        decision = next(filter(is_as_good, found), decision)
    if "placement" in evaluator.tasks:
        for _ in range(SWEEPS):
            before, decision = decision, _gather(evaluator, decision, is_as_good)
            if before is decision:
                break
    return decision


def _fuse_alike(evaluator: Evaluator, decision: Decision) -> Iterator[Decision]:
    """Yield the decision with fusion level 1 for all nodes, then with level 1 only for the nodes
    that are fused into a consumer now and level 0 for the others."""
    kernels = evaluator.environment.timeline(decision).groups
    nodes = np.arange(evaluator.graph.num_nodes)
    for fused in (np.ones_like(nodes), (kernels != nodes).astype(np.int64)):
        yield replace(decision, fusion=fused)


def _rank_alike(evaluator: Evaluator, decision: Decision) -> Iterator[Decision]:
    """Yield the decision with priorities by longest path to the end, then with equal priorities."""
    ranks = find_priorities(evaluator.graph, evaluator.machine)
    for priorities in (ranks, np.zeros_like(ranks)):
        yield replace(decision, priorities=priorities)


def _gather(
    evaluator: Evaluator, decision: Decision, is_as_good: Callable[[Decision], bool]
) -> Decision:
    """Return the decision after one pass over the nodes: each moves to the device of most of its
    neighbours if `is_as_good` accepts the new decision."""
    graph, devices = evaluator.graph, len(evaluator.machine)
    for node in map(int, np.flatnonzero(graph.decides_device)):
        placement = decision.placement[graph.leaders]
        near = np.bincount(placement[graph.leaders[graph.neighbours(node)]], minlength=devices)
        if near.max() > near[placement[node]]:
            placement[node] = near.argmax()
            other = replace(decision, placement=placement[graph.leaders])
            decision = other if is_as_good(other) else decision
    return decision
