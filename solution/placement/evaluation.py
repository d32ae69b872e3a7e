"""The objective of every search: simulate decisions, count evaluations, remember the best decision.

A decision (class Decision) gives every node a device, a priority and a fusion level. A search
decides some of the tasks placement (devices), schedule (priorities) and fusion (levels). A decision
is invalid if a device's memory overflows.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from solution.placement.baselines.divisions import decide_placement, divide_by_metis
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Decision, StepResult, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError

TASKS = ("fusion", "placement", "schedule")
# the tasks without fusion, as in the second table of the GO paper
TWO_TASKS: tuple[str, ...] = TASKS[1:]
# cost of an invalid decision, as a multiple of the reference (the default decision's seconds)
INVALID = 100.0
SHORTEST = 1e-12  # seconds; lower bound on the reference, because a program may run no kernel
PENALTY = -10.0  # reward of an invalid decision: -sqrt(INVALID), large as in the GO paper


@dataclass
class Evaluator:
    """A simulator of decisions for one graph on one machine, which keeps the best decision. `base`
    is the default decision (see find_reference) unless `ask` set another; tasks that are not in
    `tasks` are decided as in `base`. `curve` has the seconds of the best decision after each
    evaluation; infinite while all decisions are invalid."""

    environment: Environment
    tasks: tuple[str, ...] = TASKS
    base: Decision = field(init=False)
    reference: float = field(init=False)  # seconds of the default decision
    best: Decision | None = None
    best_outcome: StepResult | None = None
    curve: list[float] = field(default_factory=list)
    bound: float = 0.0  # seconds; proven lower bound on the runtime of every decision

    def __post_init__(self) -> None:
        unknown = [task for task in self.tasks if task not in TASKS]
        if unknown or not self.tasks:
            raise InputError(
                f"There is no task {', '.join(unknown)!r}. There are {', '.join(TASKS)}."
            )
        self.base, self.reference = find_reference(self.environment)

    @property
    def graph(self) -> CostGraph:
        return self.environment.graph

    @property
    def machine(self) -> Machine:
        return self.environment.machine

    @property
    def seconds(self) -> float:
        """Seconds of the best valid decision; infinite if there is none yet."""
        return self.curve[-1] if self.curve else np.inf

    @property
    def counted_seconds(self) -> float:
        """Seconds of the best valid decision, but at most INVALID times the reference."""
        return min(self.seconds, INVALID * self.reference)

    def keep_fixed(self, decision: Decision) -> Decision:
        """Return a copy of `decision` in which the tasks that are not decided are as in `base`."""
        return self._join(decision, self.base)

    def keep_beside(self, decision: Decision) -> Decision:
        """Return `decision`, but with the decided tasks as in the best decision so far, if there is
        one."""
        return self._join(decision if self.best is None else self.best, decision)

    def _join(self, asked: Decision, other: Decision) -> Decision:
        return Decision(
            (asked if "placement" in self.tasks else other).placement,
            (asked if "schedule" in self.tasks else other).priorities,
            (asked if "fusion" in self.tasks else other).fusion,
        )

    def evaluate(self, decision: Decision) -> float:
        """Simulate the decision like `judge`, and return its seconds, or INVALID times the
        reference if it is invalid."""
        return self.price(self.judge(decision))

    def judge(self, decision: Decision) -> StepResult:
        """Simulate the decision (`base` in tasks that are not decided), count one evaluation, keep
        the decision if it is the best so far, and return the outcome."""
        decision = self.keep_fixed(decision)
        outcome = self.environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds:
            self.best, self.best_outcome = decision, outcome
            self.curve.append(outcome.seconds)
        else:
            self.curve.append(self.seconds)
        return outcome

    def price(self, outcome: StepResult) -> float:
        """Return the outcome's seconds; INVALID times the reference if it is invalid."""
        return outcome.seconds if outcome.reason is None else INVALID * self.reference

    def is_valid(self, seconds: float) -> bool:
        """Return whether `seconds`, as `evaluate` returned them, belong to a valid decision."""
        return seconds != INVALID * self.reference

    def reward(self, seconds: float, penalty: float = PENALTY) -> float:
        """Return PPO's reward: -sqrt(seconds / reference) for a valid decision, else `penalty`."""
        return -float(np.sqrt(seconds / self.reference)) if self.is_valid(seconds) else penalty

    def restore(self, best: Decision | None, curve: list[float]) -> None:
        """Restore the best decision and the curve from a checkpoint; no evaluation is counted."""
        self.best, self.curve = best, curve
        self.best_outcome = None if best is None else self.environment.runtime(best)

    def start_again(self) -> "Evaluator":
        """Return a copy of the evaluator without best decision and evaluations."""
        return replace(self, best=None, best_outcome=None, curve=[])

    def ask(self, tasks: tuple[str, ...], base: Decision) -> "Evaluator":
        """Return a copy without results that decides only `tasks`; other tasks are as in `base`."""
        other = replace(self.start_again(), tasks=tasks)
        other.base = base
        return other

    def count(self, other: "Evaluator") -> None:
        """Count the evaluations of `other`, an evaluator of the same graph, as further evaluations
        of this one; take over the best decision of `other` if it is faster."""
        if other.best is not None and other.seconds < self.seconds:
            self.best, self.best_outcome = other.best, other.best_outcome
        known = self.seconds
        self.curve += [min(known, seconds) for seconds in other.curve]


def find_reference(environment: Environment) -> tuple[Decision, float]:
    """Return the default decision and its seconds, the reference: all nodes unfused on the first
    device or, if its memory overflows, divided among all devices by METIS."""
    graph, machine = environment.graph, environment.machine
    found = default_decision(graph)
    outcome = environment.runtime(found)
    if outcome.reason is not None and len(machine) > 1:
        found = decide_placement(graph, divide_by_metis(graph, machine), fused=False)
        outcome = environment.runtime(found)
    return found, max(outcome.seconds, SHORTEST)
