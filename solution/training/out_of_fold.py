"""Train every fold's models, and gather their out-of-fold and test predictions.

The folder of a job (solution.training.jobs) appears when it is complete and is never trained again.
So a run that was killed continues after its last job and ends with the same predictions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from solution.domain import predictions
from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.system.buckets import Mirror
from solution.system.files import remove
from solution.system.parquet import read_by_graphs, write_batches
from solution.system.progress import console
from solution.system.report import Report
from solution.system.terminal import say
from solution.system.wording import count
from solution.system.zips import unpack_folder
from solution.training.away import AwayTrainer, estimate_needs, share_run
from solution.training.executors.base import Executor, Task
from solution.training.executors.local import HERE
from solution.training.failures import rehearse
from solution.training.fit import train_job
from solution.training.jobs import EVERYTHING, Choice, Job, find_defect, list_jobs, remove_damaged
from solution.training.plan import Plan
from solution.training.sites import JobAddress, Site, choose_site
from solution.training.watch import Watch, watch_jobs


def run_experiments(
    experiments: Sequence[Experiment],
    plan: Plan,
    run: Run,
    executor: Executor = HERE,
    choice: Choice = EVERYTHING,
) -> None:
    """Train every chosen job that is missing; then gather the predictions of complete
    collections."""
    for experiment in experiments:
        rehearse(experiment, plan)
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan, choice)]
    missing = count_missing(jobs, run)
    say(f"{count(missing.total(), 'model')} to train of {len(jobs)}.")
    with watch_jobs(len(jobs), missing, run.log) as watch:
        train_jobs(jobs, plan, run, watch, executor)
    for experiment in experiments:
        gather(experiment, plan, run)


def train_jobs(
    jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch, executor: Executor = HERE
) -> None:
    """Train every job that has no saved result.

    Args:
        executor: where they are trained; by default in processes of this machine. An experiment
            that was made in this process, not loaded by its name or file, is trained here.
    """
    missing = skip_trained(jobs, run, watch)
    here = [job for job in missing if not job.experiment.origin]
    elsewhere = [job for job in missing if job.experiment.origin]
    try:
        _train_elsewhere(elsewhere, plan, run, watch, executor)
        for job in here:
            with watch.job(job.describe()) as report:
                train_job(job, plan, run, report)
            watch.advance()
    except KeyboardInterrupt:
        there = len(jobs) - sum(find_defect(job, run) is not None for job in missing)
        console.print(f"Stopped: {there} of {len(jobs)} models are trained.", highlight=False)
        raise


def count_missing(jobs: Sequence[Job], run: Run) -> Counter[str]:
    """Count the jobs without a folder, by kind; damaged jobs are found later."""
    return Counter(job.kind for job in jobs if not job.folder(run).exists())


def skip_trained(jobs: Sequence[Job], run: Run, watch: Watch) -> list[Job]:
    """Return the jobs that are not trained yet; show the others as done."""
    missing = remove_damaged(jobs, run)
    for _ in range(len(jobs) - len(missing)):
        watch.advance()
    return missing


def _train_elsewhere(
    jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch, executor: Executor
) -> None:
    """Train in other processes; models that come back as archives are written to the run here."""
    mirror = Mirror.find(run.folder)

    def keep(number: int, parcel: bytes | None) -> None:
        folder = jobs[number].folder(run)
        if parcel is not None:
            unpack_folder(parcel, folder)
            remove(run.checkpoints(folder))
        if mirror is not None:
            mirror.push(folder.relative_to(run.folder).as_posix())

    needs = estimate_needs(jobs, plan, executor)
    tasks = [Task(j.describe(), (JobAddress.of(j),), n) for j, n in zip(jobs, needs, strict=True)]
    site = choose_site(executor, plan, [job.experiment for job in jobs])
    if not executor.is_away:
        executor.run(Trainer(site, run), tasks, watch, keep)
    else:
        with share_run(run) as shared:
            executor.run(AwayTrainer(site, shared), tasks, watch, keep)


@dataclass(frozen=True)
class Trainer:
    """The function that workers call to train a job; they must see the folder of the run."""

    site: Site
    run: Run

    def __call__(self, address: JobAddress, report: Report) -> None:
        """Train the job; raise InputError if its experiment's file has changed meanwhile."""
        job = address.find(self.site)
        train_job(job, self.site.plan, self.run, report)


def gather(experiment: Experiment, plan: Plan, run: Run) -> tuple[str, ...]:
    """Check and join the predictions of the collections whose jobs are all done; return these."""
    jobs = list_jobs(experiment, plan)
    lacking = {name for job in jobs if find_defect(job, run) for name in job.collections}
    complete = {name for job in jobs for name in job.collections} - lacking
    if complete:
        kept = [job for job in jobs if complete & set(job.collections)]
        for part in predictions.PARTS:
            _check_part(kept, plan, run, part)
            _join_part(kept, complete, run, part)
    return tuple(name for name in experiment.collections if name in complete)


def _check_part(jobs: Sequence[Job], plan: Plan, run: Run, part: str) -> None:
    labels = predictions.read(run.labels)
    for job in jobs:
        path = _part(job, run, part)
        requested = _requested(job, plan, labels, part)
        predictions.check_predictions(predictions.read(path), requested, str(path))


def _join_part(jobs: Sequence[Job], complete: set[str], run: Run, part: str) -> None:
    paths = {str(job.folder(run)): _part(job, run, part) for job in jobs}
    joined = (
        pl.concat(frames.values()).sort(predictions.KEYS)
        for collection, frames in read_by_graphs(paths)
        if collection in complete
    )
    path = run.predictions(jobs[0].experiment.name, part)
    write_batches(joined, predictions.SCHEMA, path)


def _part(job: Job, run: Run, part: str) -> Path:
    return job.folder(run) / f"{part}.parquet"


def _requested(job: Job, plan: Plan, labels: pl.DataFrame, part: str) -> pl.DataFrame:
    """Return collection, graph and config of every prediction that the job must have made."""
    if part == "test":
        return pl.concat([plan.test_questions(name) for name in job.collections])
    held_out = pl.concat([plan.held_out(name, job.fold) for name in job.collections])
    return labels.drop("runtime").join(
        held_out, on=["collection", "graph"], how="semi", maintain_order="left"
    )
