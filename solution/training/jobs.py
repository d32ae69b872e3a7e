"""Units: what an experiment consists of, and which units share a model.

A unit is an experiment on one collection, without one fold, with one seed: a trained model and what
it predicts. Where an experiment learns from collections together, the units that leave out the same
fold of them have the same model, which is trained once.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.training.folds import NO_FOLD
from solution.training.plan import IS_LABELLED, Plan


@dataclass(frozen=True)
class Unit:
    """An experiment on one collection, without one fold, with one seed."""

    experiment: Experiment
    collection: str
    fold: int  # NO_FOLD: it learns from every labelled graph and only predicts the test graphs
    seed: int

    @property
    def learns_from(self) -> tuple[str, ...]:
        """The collections that its model learns from."""
        return self.experiment.learns_from(self.collection)

    def folder(self, run: Run) -> Path:
        return run.unit(self.experiment.name, self.collection, self.fold, self.seed)

    def address(self) -> tuple[str, str, str, int, int]:
        """What another process makes it again from."""
        experiment = self.experiment
        return experiment.origin, experiment.source, self.collection, self.fold, self.seed

    def describe(self) -> str:
        """What people call it."""
        fold = "all graphs" if self.fold == NO_FOLD else f"fold {self.fold}"
        seed = f" seed {self.seed}" if len(self.experiment.seeds) > 1 else ""
        return f"{self.experiment.name} {self.collection} {fold}{seed}"


def list_units(experiment: Experiment, plan: Plan) -> list[Unit]:
    """The units of an experiment: one for each collection, fold and seed.

    A collection whose graphs cannot be divided gets one whose model predicts only the test graphs;
    one without labelled graphs gets it only where the ranker learns nothing anyway.
    """
    units = []
    for collection in experiment.collections:
        needed = IS_LABELLED if experiment.ranker.build(0).learns else pl.lit(value=True)
        if plan.rows(collection, needed).is_empty():
            continue
        folds = plan.folds(collection) or [NO_FOLD]
        units += [Unit(experiment, collection, f, seed) for f in folds for seed in experiment.seeds]
    return units


def list_missing(experiments: Sequence[Experiment], plan: Plan, run: Run) -> list[Unit]:
    """The units of the plan that the run does not have."""
    units = [unit for experiment in experiments for unit in list_units(experiment, plan)]
    return [unit for unit in units if not unit.folder(run).exists()]


def order(units: Sequence[Unit]) -> list[Unit]:
    """One unit of every model first, so that the others find it trained."""
    seen = set()
    first: list[Unit] = []
    rest: list[Unit] = []
    for unit in units:
        model = unit.experiment.name, unit.learns_from, unit.fold, unit.seed
        (rest if model in seen else first).append(unit)
        seen.add(model)
    return [*first, *rest]


def find_twin(unit: Unit, run: Run) -> Unit | None:
    """Another unit with the same model, if it is trained."""
    for collection in unit.learns_from:
        other = dataclasses.replace(unit, collection=collection)
        if collection != unit.collection and other.folder(run).exists():
            return other
    return None
