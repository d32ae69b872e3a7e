"""Count evaluations and remember the best decision: the objective of every search."""

from dataclasses import dataclass, field, replace

import numpy as np

from solution.placement.baselines.divisions import decide_placement, divide_by_metis
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Decision, StepResult, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError

TASKS = ("fusion", "placement", "schedule")
TWO_TASKS: tuple[str, ...] = TASKS[1:]  # as in the second table of the GO paper
INVALID = 100.0  # an invalid decision counts as this many times the reference
SHORTEST = 1e-12  # seconds; the least reference, for programs that run no kernel
PENALTY = -10.0  # reward of an invalid decision, large as in the GO paper: -sqrt(INVALID)


@dataclass
class Evaluator:
    """Evaluate decisions of a graph on a machine, for the tasks that are decided.

    The other tasks stay as in `base`. `curve` has the best seconds after each evaluation.
    """

    environment: Environment
    tasks: tuple[str, ...] = TASKS
    base: Decision = field(init=False)
    reference: float = field(init=False)
    best: Decision | None = None
    best_outcome: StepResult | None = None
    curve: list[float] = field(default_factory=list)
    bound: float = 0.0  # seconds; a proven lower bound of all decisions

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
        """Seconds of the best valid decision; if there is none yet, the value of an invalid one."""
        return min(self.seconds, INVALID * self.reference)

    def keep_fixed(self, decision: Decision) -> Decision:
        """Return the decision for the evaluator's tasks, and the base for the others."""
        return self._join(decision, self.base)

    def keep_beside(self, decision: Decision) -> Decision:
        """Return the best decision for the evaluator's tasks, and `decision` for the others."""
        return self._join(decision if self.best is None else self.best, decision)

    def _join(self, asked: Decision, other: Decision) -> Decision:
        return Decision(
            (asked if "placement" in self.tasks else other).placement,
            (asked if "schedule" in self.tasks else other).priorities,
            (asked if "fusion" in self.tasks else other).fusion,
        )

    def evaluate(self, decision: Decision) -> float:
        """Return the seconds of the decision; 100 times the reference if it is invalid."""
        return self.price(self.judge(decision))

    def judge(self, decision: Decision) -> StepResult:
        """Simulate the decision and count one evaluation."""
        decision = self.keep_fixed(decision)
        outcome = self.environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds:
            self.best, self.best_outcome = decision, outcome
            self.curve.append(outcome.seconds)
        else:
            self.curve.append(self.seconds)
        return outcome

    def price(self, outcome: StepResult) -> float:
        """Return the outcome's seconds, or the value of an invalid decision."""
        return outcome.seconds if outcome.reason is None else INVALID * self.reference

    def is_valid(self, seconds: float) -> bool:
        """Return whether the seconds that `evaluate` returned are those of a valid decision."""
        return seconds != INVALID * self.reference

    def reward(self, seconds: float, penalty: float = PENALTY) -> float:
        """Return -sqrt(seconds / reference) of an evaluated decision; `penalty` if invalid."""
        return -float(np.sqrt(seconds / self.reference)) if self.is_valid(seconds) else penalty

    def restore(self, best: Decision | None, curve: list[float]) -> None:
        """Restore the state from a checkpoint; no evaluation is counted again."""
        self.best, self.curve = best, curve
        self.best_outcome = None if best is None else self.environment.runtime(best)

    def start_again(self) -> "Evaluator":
        """Return an evaluator of the same graph and tasks without any results."""
        return replace(self, best=None, best_outcome=None, curve=[])

    def ask(self, tasks: tuple[str, ...], base: Decision) -> "Evaluator":
        """Return an evaluator without results that decides only `tasks`, the rest as in `base`."""
        other = replace(self.start_again(), tasks=tasks)
        other.base = base
        return other

    def count(self, other: "Evaluator") -> None:
        """Add the evaluations of another evaluator of the same graph to this one's."""
        if other.best is not None and other.seconds < self.seconds:
            self.best, self.best_outcome = other.best, other.best_outcome
        known = self.seconds
        self.curve += [min(known, seconds) for seconds in other.curve]


def find_reference(environment: Environment) -> tuple[Decision, float]:
    """Return the default decision and its seconds: one device if it fits, else METIS; unfused.

    If neither fits, its seconds still serve as the reference.
    """
    graph, machine = environment.graph, environment.machine
    found = default_decision(graph)
    outcome = environment.runtime(found)
    if outcome.reason is not None and len(machine) > 1:
        found = decide_placement(graph, divide_by_metis(graph, machine), fused=False)
        outcome = environment.runtime(found)
    return found, max(outcome.seconds, SHORTEST)
