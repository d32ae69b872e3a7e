"""What a run gives up so that it ends in so many hours: seeds first, then folds, then epochs.

Further seeds move a score least for the time that they take; with fewer folds a model learns from
fewer graphs, but not for less long; shorter trainings cost most. A run keeps to what it began with:
what it gave up is found again in its record.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from solution.experiments.base import Experiment
from solution.runs.folder import EXPERIMENTS, RECORD, read_record
from solution.system.errors import InputError
from solution.system.wording import count, spell
from solution.training.forecast import Forecast, foretell_wall

FEWEST_FOLDS = 3
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)  # of the epochs
SECONDS = 3600.0  # of an hour


@dataclass(frozen=True)
class Budget:
    """What is trained of some experiments."""

    seeds: int  # of each experiment, at most
    folds: int
    share: float = 1.0  # of the epochs of nets

    def apply(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """The experiments as they are trained."""
        return [item.cut(self.seeds, self.share) for item in experiments]

    def scale(
        self, found: Sequence[Forecast], experiments: Sequence[Experiment], folds: int
    ) -> list[Forecast]:
        """What the models that are left take.

        Args:
            found: what those of all seeds and `folds` take.
        """
        named = {item.name: item for item in experiments}
        scaled = []
        for line in found:
            item = named[line.experiment]
            kept = len(item.seeds[: self.seeds]) / len(item.seeds)
            is_shorter = item.ranker.shortened(self.share) != item.ranker
            scaled.append(
                replace(
                    line,
                    models=max(1, round(line.models * kept * self.folds / folds)),
                    fit_seconds=line.fit_seconds * (self.share if is_shorter else 1.0),
                )
            )
        return scaled

    def describe(self, whole: "Budget") -> str:
        """What is given up of the whole, in words; empty where nothing is."""
        given_up = []
        if self.seeds < whole.seeds:
            given_up.append(f"{count(self.seeds, 'seed')} instead of {whole.seeds}")
        if self.folds < whole.folds:
            given_up.append(f"{self.folds} folds instead of {whole.folds}")
        if self.share < whole.share:
            given_up.append(f"{self.share:.0%} of the epochs of nets")
        return ", ".join(given_up)


def find_whole(experiments: Sequence[Experiment], folds: int) -> Budget:
    """Nothing is given up."""
    return Budget(max(len(item.seeds) for item in experiments), folds)


def list_budgets(experiments: Sequence[Experiment], folds: int) -> list[Budget]:
    """All that may be trained, from the whole to the least."""
    whole = find_whole(experiments, folds)
    fewest = min(folds, FEWEST_FOLDS)
    seeds = [replace(whole, seeds=number) for number in range(whole.seeds - 1, 0, -1)]
    fewer = [Budget(1, number) for number in range(folds - 1, fewest - 1, -1)]
    return [whole, *seeds, *fewer, *(Budget(1, fewest, share) for share in SHARES)]


def choose_budget(
    found: Sequence[Forecast],
    experiments: Sequence[Experiment],
    folds: int,
    hours: float,
    workers: int,
    beside: float = 0.0,
) -> Budget:
    """The first budget that fits into the hours.

    Args:
        found: what the models of all seeds and folds take.
        beside: seconds before and after the training.

    Raises InputError where not even the least does.
    """
    for budget in list_budgets(experiments, folds):
        seconds = foretell_wall(budget.scale(found, experiments, folds), workers, beside)
        if seconds <= hours * SECONDS:
            return budget
    raise InputError(
        f"{hours:g} hours are not enough: with {budget.describe(find_whole(experiments, folds))} "
        f"it takes {spell(seconds)} on {count(workers, 'worker')} still. Give it more --hours, or "
        "choose collections with --collection, or fewer members with --experiment."
    )


def describe_as_recorded(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """By name, what a run's record says of each, which went through JSON."""
    described: dict[str, Any] = json.loads(
        json.dumps({experiment.name: experiment.describe() for experiment in experiments})
    )
    return described


def recall_budget(folder: Path, experiments: Sequence[Experiment], folds: int) -> Budget | None:
    """What the run in the folder began with; None where there is none, or another one."""
    if not (folder / RECORD).is_file():
        return None
    settings = read_record(folder)["settings"]
    known = settings.get(EXPERIMENTS, {})
    for budget in list_budgets(experiments, folds):
        wanted = describe_as_recorded(budget.apply(experiments))
        there = wanted.keys() & known.keys()
        same = settings.get("folds") == budget.folds and bool(there)
        if same and all(wanted[name] == known[name] for name in there):
            return budget
    return None
