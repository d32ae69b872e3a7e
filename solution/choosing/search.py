"""The search loop: ask an optimizer, measure, tell it the times, write the journal.

A search that is killed at any moment and resumed gives the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solution.choosing.journal import Journal, Trial
from solution.choosing.proposer import Proposer
from solution.collecting.space import name_config

MEASURED = 24  # default number of measurements, if no time limit is given either
COMPILED = 48  # default number of configurations that a TPU's compiler estimates


class Measurer(Protocol):
    """The interface of objects that time, estimate or look up configurations."""

    def measure(self, configs: np.ndarray) -> Sequence[Trial]:
        """Measure configurations (k, sites); return a trial for each."""


@dataclass(frozen=True)
class Budget:
    """The limits of a search, which ends at the first one that is reached."""

    measurements: int
    seconds: float = float("inf")
    batch: int = 1  # configurations measured together


def search(
    proposer: Proposer,
    measurer: Measurer,
    budget: Budget,
    journal: Journal | None = None,
    tell: Callable[[Sequence[Trial]], None] = lambda trials: None,
    value: Callable[[Trial], float] = lambda trial: trial.time,
) -> list[Trial]:
    """Search until the budget is spent or no configuration is left; return the trials in order. A
    resumed search asks in the same order and gets the journal's times. `tell` gets all trials after
    each batch; `value` returns the number that the search minimises, NaN for a failed trial."""
    journal = journal or Journal(None, {})
    trials: list[Trial] = []
    while len(trials) < budget.measurements and _spent(trials) < budget.seconds:
        count = min(budget.batch, budget.measurements - len(trials))
        asked = proposer.ask(count)
        if not len(asked):
            break
        told = _look_up(asked, measurer, journal)
        proposer.tell(asked, np.array([value(trial) for trial in told]))
        trials += told
        tell(trials)
    return trials


def _look_up(asked: np.ndarray, measurer: Measurer, journal: Journal) -> list[Trial]:
    names = [name_config(row) for row in asked]
    unknown = [row for row, name in enumerate(names) if name not in journal.trials]
    if unknown:
        for trial in measurer.measure(asked[unknown]):
            journal.trials[trial.name] = trial
        journal.write()
    return [journal.trials[name] for name in names]


def _spent(trials: Sequence[Trial]) -> float:
    return sum(trial.seconds for trial in trials)
