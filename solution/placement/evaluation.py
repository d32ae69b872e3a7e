"""Count evaluations, and remember the best decision: what a search has instead of a clock."""

from dataclasses import dataclass, field, replace

import numpy as np

from solution.placement.baselines.divisions import divide_by_metis, place
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Decision, Outcome, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError

TASKS = ("fusion", "placement", "schedule")
TWO_TASKS: tuple[str, ...] = TASKS[1:]  # as in the second table of the document
INVALID = 100.0  # times the reference is what an invalid decision counts as
SHORTEST = 1e-12  # seconds to compare by, of programs that take none: they run no kernel
PENALTY = -10.0  # its reward, the document's large one: -sqrt(INVALID)


@dataclass
class Evaluator:
    """A graph on a machine, the tasks that are decided, and what was found so far.

    What is not decided stays as in `base`. `curve` has the best seconds after each evaluation.
    """

    environment: Environment
    tasks: tuple[str, ...] = TASKS
    base: Decision = field(init=False)
    reference: float = field(init=False)
    best: Decision | None = None
    best_outcome: Outcome | None = None
    curve: list[float] = field(default_factory=list)
    bound: float = 0.0  # seconds that somebody has proven no decision can beat

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
        """The best valid decision's; infinite where there is none yet."""
        return self.curve[-1] if self.curve else np.inf

    @property
    def counted_seconds(self) -> float:
        """The best valid decision's; where there is none yet, what an invalid one counts as."""
        return min(self.seconds, INVALID * self.reference)

    def keep_fixed(self, decision: Decision) -> Decision:
        """The decision where it is asked for, and the base elsewhere."""
        return self._join(decision, self.base)

    def keep_beside(self, decision: Decision) -> Decision:
        """What was found of the tasks that are asked for, and `decision` elsewhere."""
        return self._join(decision if self.best is None else self.best, decision)

    def _join(self, asked: Decision, other: Decision) -> Decision:
        return Decision(
            (asked if "placement" in self.tasks else other).placement,
            (asked if "schedule" in self.tasks else other).priorities,
            (asked if "fusion" in self.tasks else other).fusion,
        )

    def evaluate(self, decision: Decision) -> float:
        """Seconds of the decision; of an invalid one 100 times the reference."""
        return self.price(self.judge(decision))

    def judge(self, decision: Decision) -> Outcome:
        """Simulate the decision: one evaluation more."""
        decision = self.keep_fixed(decision)
        outcome = self.environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds:
            self.best, self.best_outcome = decision, outcome
            self.curve.append(outcome.seconds)
        else:
            self.curve.append(self.seconds)
        return outcome

    def price(self, outcome: Outcome) -> float:
        """Its seconds, or what an invalid one counts as."""
        return outcome.seconds if outcome.reason is None else INVALID * self.reference

    def is_valid(self, seconds: float) -> bool:
        """Whether what `evaluate` said is a time, and not what an invalid decision counts as."""
        return seconds != INVALID * self.reference

    def reward(self, seconds: float, penalty: float = PENALTY) -> float:
        """-sqrt(seconds / reference), of what `evaluate` said; the penalty of what is invalid."""
        return -float(np.sqrt(seconds / self.reference)) if self.is_valid(seconds) else penalty

    def restore(self, best: Decision | None, curve: list[float]) -> None:
        """Go on from what a checkpoint remembers; nothing is counted anew."""
        self.best, self.curve = best, curve
        self.best_outcome = None if best is None else self.environment.runtime(best)

    def start_again(self) -> "Evaluator":
        """The same question with nothing found."""
        return replace(self, best=None, best_outcome=None, curve=[])

    def ask(self, tasks: tuple[str, ...], base: Decision) -> "Evaluator":
        """Nothing found of these tasks alone, where all else stays as in `base`."""
        other = replace(self.start_again(), tasks=tasks)
        other.base = base
        return other

    def count(self, other: "Evaluator") -> None:
        """What another evaluator of the same graph has evaluated since counts here, too."""
        if other.best is not None and other.seconds < self.seconds:
            self.best, self.best_outcome = other.best, other.best_outcome
        known = self.seconds
        self.curve += [min(known, seconds) for seconds in other.curve]


def find_reference(environment: Environment) -> tuple[Decision, float]:
    """The default decision and its seconds: one device if it fits, else METIS; nothing fused.

    Where neither fits its seconds are taken all the same, to compare by.
    """
    graph, machine = environment.graph, environment.machine
    found = default_decision(graph)
    outcome = environment.runtime(found)
    if outcome.reason is not None and len(machine) > 1:
        found = place(graph, divide_by_metis(graph, machine), fused=False)
        outcome = environment.runtime(found)
    return found, max(outcome.seconds, SHORTEST)
