"""Jobs: the models that an experiment consists of.

A job is one trained model: of an experiment, on a group of collections that it learns from jointly
(mostly a group of one), without one fold, with one seed. It ranks every collection of its group.
Jobs do not depend on each other, so they may be done in any order and anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.runs.job import check_job
from solution.system.errors import InputError
from solution.system.files import remove
from solution.system.progress import warn
from solution.training.folds import NO_FOLD
from solution.training.plan import IS_LABELLED, Plan


@dataclass(frozen=True)
class Job:
    """A model to be trained."""

    experiment: Experiment
    group: tuple[str, ...]  # the collections that it learns from
    collections: tuple[str, ...]  # those of them that it ranks
    fold: int  # NO_FOLD: no labelled graph is held out; it only predicts the test graphs
    seed: int

    def folder(self, run: Run) -> Path:
        return run.job(self.experiment.name, self.group, self.fold, self.seed)

    @property
    def kind(self) -> str:
        """What it trains, whatever the fold and the seed."""
        return f"{self.experiment.name} {' + '.join(self.collections)}"

    def describe(self) -> str:
        """What people call it."""
        fold = "all graphs" if self.fold == NO_FOLD else f"fold {self.fold}"
        seed = f" seed {self.seed}" if len(self.experiment.seeds) > 1 else ""
        return f"{self.kind} {fold}{seed}"


@dataclass(frozen=True)
class Choice:
    """Which jobs of a plan are meant: those that rank one of the collections, of these folds."""

    collections: tuple[str, ...] = ()  # empty: all
    folds: tuple[int, ...] = ()  # empty: all

    def includes(self, job: Job) -> bool:
        """Whether the job is meant; one that has no fold to leave out is of all folds."""
        ranks = not self.collections or bool(set(self.collections) & set(job.collections))
        return ranks and (not self.folds or job.fold in (NO_FOLD, *self.folds))


EVERYTHING = Choice()


def list_jobs(experiment: Experiment, plan: Plan, choice: Choice = EVERYTHING) -> list[Job]:
    """The jobs of an experiment: one for each group of collections, fold and seed.

    A collection whose graphs cannot be divided gets one whose model predicts only the test graphs;
    one without labelled graphs gets it only where the ranker learns nothing anyway.
    """
    ranked: dict[tuple[tuple[str, ...], int], list[str]] = {}
    needed = IS_LABELLED if experiment.ranker.learns else pl.lit(value=True)
    for collection in experiment.collections:
        if plan.rows(collection, needed).is_empty():
            continue
        for fold in plan.folds(collection) or [NO_FOLD]:
            ranked.setdefault((experiment.learns_from(collection), fold), []).append(collection)
    jobs = [
        Job(experiment, group, tuple(collections), fold, seed)
        for (group, fold), collections in ranked.items()
        for seed in experiment.seeds
    ]
    return [job for job in jobs if choice.includes(job)]


def list_missing(
    experiments: Sequence[Experiment], plan: Plan, run: Run, choice: Choice = EVERYTHING
) -> list[Job]:
    """The jobs of the plan that the run does not have, or not as they were written."""
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan, choice)]
    return [job for job in jobs if find_defect(job, run) is not None]


def find_defect(job: Job, run: Run) -> str | None:
    """Why the run does not have the job, in words; None where it has, as it was written."""
    folder = job.folder(run)
    if not folder.exists():
        return "not trained yet"
    try:
        record = check_job(folder)
    except InputError as error:
        return str(error)
    expected = (job.experiment.name, job.experiment.source, job.fold, job.seed, job.group)
    found = (record.experiment, record.source, record.fold, record.seed, record.learned_from)
    if expected != found or set(record.collections) != set(job.collections):
        return f"{folder}: holds another model ({record.experiment}, {found[2:]})."
    return None


def remove_damaged(jobs: Sequence[Job], run: Run) -> list[Job]:
    """The jobs that are still to be done; what is there of them and is not whole is deleted."""
    missing = []
    for job in jobs:
        defect, folder = find_defect(job, run), job.folder(run)
        if defect is None:
            remove(run.checkpoints(folder))
            continue
        if folder.exists():
            warn(f"{defect} It is trained again.")
            remove(folder)
        missing.append(job)
    return missing
