"""The best decisions that are known of some questions: what a policy imitates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import torch

from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import Workload
from solution.placement.machine import make_machine
from solution.placement.policy.imitation import Lesson, make_lesson
from solution.placement.policy.network import Policy
from solution.placement.policy.tidying import tidy
from solution.placement.search import find_seconds_at_once, optimize
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.processes import open_pool
from solution.system.progress import track

DEVICES = (2, 4)
LEAST, NODES = 100, 1_000_000  # of a search: evaluations that are not too many; nodes in all


def make_evaluators(
    workloads: Sequence[Workload],
    tasks: tuple[str, ...] = TASKS,
    devices: Sequence[int] = DEVICES,
) -> list[Evaluator]:
    """Each workload on so many devices each time; where none are given, on its own number."""
    return [
        Evaluator(Environment(graph, make_machine(number)), tasks)
        for workload in workloads
        for graph in [workload.make()]
        for number in devices or (workload.devices,)
    ]


@dataclass
class Best:
    """The best decision that is known of each question, tidied.

    Where none is known that fits into memory, there is nothing to learn or to compare with.

    Attributes:
        seconds: of the decisions; infinite where none is known that fits.
        workers: processes that search; what they find does not depend on how many there are.
    """

    evaluators: Sequence[Evaluator]
    workers: int = 1
    decisions: list[Decision] = field(init=False)
    seconds: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.decisions = [evaluator.base for evaluator in self.evaluators]
        self.seconds = [math.inf] * len(self.evaluators)
        for place, base in enumerate(self.decisions):
            self._keep(place, base)

    def search(self, policy: Policy | None, budget: int, seed: int) -> None:
        """Spend so many evaluations on each, on a large graph fewer."""
        with track(range(len(self.evaluators)), "Searching") as places:
            for decision, place in zip(self._find_all(policy, budget, seed), places, strict=True):
                if decision is not None:
                    self._keep(place, decision)

    def _find_all(self, policy: Policy | None, budget: int, seed: int) -> Iterator[Decision | None]:
        budgets = [fit_budget(evaluator.graph.num_nodes, budget) for evaluator in self.evaluators]
        asked = self.evaluators, repeat(policy), budgets, repeat(seed)
        if self.workers == 1:
            yield from map(find_best, *asked)
            return
        with open_pool(self.workers, begin_searching) as pool:
            yield from pool.map(find_best, *asked)

    def _keep(self, place: int, decision: Decision) -> None:
        outcome = self.evaluators[place].environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds[place]:
            self.decisions[place], self.seconds[place] = decision, outcome.seconds

    def make_lessons(self) -> list[Lesson]:
        """A lesson a question of which something is known."""
        return [make_lesson(evaluator, decision) for evaluator, decision, _ in self._find_known()]

    def compare(self, policy: Policy) -> float:
        """Seconds of the policy's likeliest decisions over the best known: the geometric mean."""
        logs = [
            np.log(find_seconds_at_once(evaluator, policy) / best)
            for evaluator, _, best in self._find_known()
        ]
        return float(np.exp(np.mean(logs)))

    def _find_known(self) -> Iterator[tuple[Evaluator, Decision, float]]:
        every = zip(self.evaluators, self.decisions, self.seconds, strict=True)
        return (known for known in every if known[2] < math.inf)


def fit_budget(nodes: int, budget: int) -> int:
    """So many evaluations, but no more than simulate NODES nodes in all; LEAST are in any case."""
    return min(budget, max(LEAST, NODES // nodes))


def begin_searching() -> None:
    """A worker has a core."""
    torch.set_num_threads(1)


def find_best(
    evaluator: Evaluator, policy: Policy | None, budget: int, seed: int
) -> Decision | None:
    """What a search of so many evaluations found, tidied; None where nothing fits."""
    asked = evaluator.start_again()
    optimize(asked, policy, budget, seed)
    return None if asked.best is None else tidy(evaluator, asked.best)
