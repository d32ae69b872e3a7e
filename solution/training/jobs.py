"""List the jobs of an experiment, each of which trains one model.

A model learns jointly from a group of collections (mostly a group of one), holds out one fold, and
has one seed. It ranks collections of its group. Jobs do not depend on each other, so they can run
in any order and on any machine.
"""

from collections import Counter
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
from solution.system.terminal import say
from solution.system.wording import count
from solution.training.folds import NO_FOLD
from solution.training.plan import IS_LABELLED, Plan


@dataclass(frozen=True)
class Job:
    """A model to be trained."""

    experiment: Experiment
    group: tuple[str, ...]  # the collections that the model learns from
    collections: tuple[str, ...]  # the collections of `group` that the model ranks
    fold: int  # held-out fold; NO_FOLD: none is held out, so only test graphs are predicted
    seed: int

    def folder(self, run: Run) -> Path:
        return run.job(self.experiment.name, self.group, self.fold, self.seed)

    @property
    def kind(self) -> str:
        """The experiment and its collections as text, the same for all folds and seeds."""
        return f"{self.experiment.name} {' + '.join(self.collections)}"

    def describe(self) -> str:
        """Return the name of the job for messages."""
        fold = "all graphs" if self.fold == NO_FOLD else f"fold {self.fold}"
        seed = f" seed {self.seed}" if len(self.experiment.seeds) > 1 else ""
        return f"{self.kind} {fold}{seed}"


@dataclass(frozen=True)
class Choice:
    """A filter: it selects the jobs that rank one of `collections` and hold out one of `folds`."""

    collections: tuple[str, ...] = ()  # names; empty: all collections
    folds: tuple[int, ...] = ()  # numbers; empty: all folds

    def includes(self, job: Job) -> bool:
        """Return whether the filter selects the job. A job that holds out no fold is selected
        whatever `folds` is, if it ranks one of `collections`."""
        ranks = not self.collections or bool(set(self.collections) & set(job.collections))
        return ranks and (not self.folds or job.fold in (NO_FOLD, *self.folds))


EVERYTHING = Choice()


def split_loaded(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Return (jobs whose experiment another process can load, jobs whose experiment was made in
    memory)."""
    loaded = [job for job in jobs if job.experiment.origin]
    return loaded, [job for job in jobs if not job.experiment.origin]


def list_jobs(experiment: Experiment, plan: Plan, choice: Choice = EVERYTHING) -> list[Job]:
    """Return the experiment's jobs that `choice` selects: one per group of collections, fold and
    seed. A collection without folds gets jobs that hold out no fold. An unlabelled collection gets
    jobs only if the ranker learns nothing."""
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
    """Return the jobs of `choice` that the run has not trained or whose files are damaged."""
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan, choice)]
    return [job for job in jobs if find_defect(job, run) is not None]


@dataclass(frozen=True)
class Backlog:
    """All jobs of a run. The untrained jobs are divided into jobs that a filter selects, which are
    to be trained, and the others."""

    jobs: Sequence[Job]
    missing: Sequence[Job]  # selected jobs that are to be trained
    left_out: Sequence[Job]  # other untrained jobs, which the filter does not select
    total: int  # jobs that the filter selects, trained or not

    @classmethod
    def of(cls, jobs: Sequence[Job], run: Run, choice: Choice = EVERYTHING) -> "Backlog":
        """Check all jobs. Delete damaged jobs that `choice` selects, with a warning for each."""
        chosen = [job for job in jobs if choice.includes(job)]
        others = [job for job in jobs if not choice.includes(job)]
        left_out = [job for job in others if find_defect(job, run)]
        return cls(jobs, remove_damaged(chosen, run), left_out, len(chosen))

    def count_kinds(self) -> Counter[str]:
        """Return the number of missing jobs of each kind."""
        return Counter(job.kind for job in self.missing)


def find_backlog(
    experiments: Sequence[Experiment], plan: Plan, run: Run, choice: Choice = EVERYTHING
) -> Backlog:
    """Return all jobs of the experiments as a Backlog, and print how many of the jobs that `choice`
    selects are to be trained."""
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan)]
    backlog = Backlog.of(jobs, run, choice)
    say(f"{count(len(backlog.missing), 'model')} to train of {backlog.total}.")
    return backlog


def find_defect(job: Job, run: Run) -> str | None:
    """Return in words why a job must be trained; None if the run has its files, undamaged."""
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
    """Return the jobs that must be trained. Delete damaged jobs, with a warning for each, and the
    checkpoints of jobs that are trained."""
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
