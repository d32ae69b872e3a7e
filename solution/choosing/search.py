"""The loop: ask, measure, tell, write down; killed at any moment, it goes on to the same end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solution.choosing.journal import FAILED, Journal, Trial
from solution.choosing.proposer import Proposer
from solution.choosing.space import name_choices
from solution.choosing.table import Table

MEASURED = 24  # configurations, where neither their number nor a time is given


class Measurer(Protocol):
    """What finds out how fast configurations are."""

    def measure(self, choices: np.ndarray) -> Sequence[Trial]:
        """What became of each of (k, sites)."""
        ...


@dataclass(frozen=True)
class Budget:
    """How much may be spent; the search ends where either is spent."""

    measurements: int
    seconds: float = float("inf")
    batch: int = 1  # measured together


def search(
    proposer: Proposer,
    measurer: Measurer,
    budget: Budget,
    journal: Journal | None = None,
    tell: Callable[[Sequence[Trial]], None] = lambda trials: None,
) -> list[Trial]:
    """Search until the budget is spent or nothing is left to try; all trials in their order.

    What the journal has is not measured again: the proposer asks for the same once more, and is
    told what was found then.
    """
    journal = journal or Journal.in_memory()
    trials: list[Trial] = []
    while len(trials) < budget.measurements and _spent(trials) < budget.seconds:
        count = min(budget.batch, budget.measurements - len(trials))
        asked = proposer.ask(count)
        if not len(asked):
            break
        told = _look_up(asked, measurer, journal)
        proposer.tell(asked, np.array([trial.time for trial in told]))
        trials += told
        tell(trials)
    return trials


def _look_up(asked: np.ndarray, measurer: Measurer, journal: Journal) -> list[Trial]:
    names = [name_choices(row) for row in asked]
    unknown = [place for place, name in enumerate(names) if name not in journal.trials]
    if unknown:
        for trial in measurer.measure(asked[unknown]):
            journal.trials[trial.name] = trial
        journal.write()
    return [journal.trials[name] for name in names]


def _spent(trials: Sequence[Trial]) -> float:
    return sum(trial.seconds for trial in trials)


class Lookup:
    """The measurer of a table."""

    def __init__(self, table: Table) -> None:
        self._times = dict(zip(table.space.names, table.runtimes.tolist(), strict=True))

    def measure(self, choices: np.ndarray) -> list[Trial]:
        """The known runtimes."""
        names = [name_choices(row) for row in choices]
        return [
            Trial(name, row.tolist(), self._times.get(name), "" if name in self._times else FAILED)
            for name, row in zip(names, choices, strict=True)
        ]
