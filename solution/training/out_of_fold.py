"""Train every fold's models, and gather their out-of-fold and test predictions.

The caller lists the jobs (solution.training.jobs), and an executor trains them. The folder of a job
appears only when the job is complete, and the job is never trained again. So a run that was killed
continues after its last complete job and ends with the same predictions.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.table import Table

from ensembles.merge import TABLE_SCHEMA, name_scores, read_draws
from ensembles.statistics import means_by_member, show_interval
from solution.domain import predictions
from solution.domain.metrics import score_predictions
from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.parquet import read_by_graphs, write_batches
from solution.system.progress import console
from solution.system.terminal import make_table
from solution.training.executors.base import Executor
from solution.training.executors.local import HERE
from solution.training.jobs import Backlog, Choice, Job, find_backlog, list_jobs
from solution.training.plan import Plan
from solution.training.watch import Watch, watch_jobs


def run_experiments(
    backlog: Backlog, plan: Plan, run: Run, executor: Executor = HERE, title: str | None = None
) -> None:
    """Train missing jobs; join the predictions of collections whose jobs are all trained. On a
    terminal, `title` heads a table with a row per fit."""
    with watch_jobs(backlog.total, backlog.count_kinds(), run.log, title) as watch:
        train_jobs(backlog, plan, run, watch, executor)
    gather(backlog.jobs, backlog.left_out, plan, run)


def train_jobs(
    backlog: Backlog, plan: Plan, run: Run, watch: Watch, executor: Executor = HERE
) -> None:
    """Train the missing jobs; if the user interrupts, print how many are trained."""
    before = backlog.total - len(backlog.missing)
    for _ in range(before):
        watch.advance()
    try:
        executor.train(backlog.missing, plan, run, watch)
    except KeyboardInterrupt:
        trained = before + sum(job.folder(run).exists() for job in backlog.missing)
        console.print(f"Stopped: {trained} of {backlog.total} models are trained.", highlight=False)
        raise


def gather(jobs: Sequence[Job], untrained: Sequence[Job], plan: Plan, run: Run) -> None:
    """Check and join each experiment's predictions of the collections whose jobs are all trained.
    `untrained`: the jobs among `jobs` that are not trained."""
    for name in dict.fromkeys(job.experiment.name for job in jobs):
        ours = [job for job in jobs if job.experiment.name == name]
        lacking = {name for job in ours if job in untrained for name in job.collections}
        complete = {name for job in ours for name in job.collections} - lacking
        kept = [job for job in ours if complete & set(job.collections)]
        for part in predictions.PARTS if kept else ():
            _check_part(kept, plan, run, part)
            _join_part(kept, complete, run, part)


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


def check_collections(experiment: Experiment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the collections `asked` (empty: all) in the experiment's order. Raises InputError if
    the experiment does not rank one of them."""
    unknown = [name for name in asked if name not in experiment.collections]
    if unknown:
        raise InputError(
            f"{experiment.name} is not for {', '.join(unknown)}, but for "
            f"{', '.join(experiment.collections)}. Choose among these."
        )
    return tuple(name for name in experiment.collections if not asked or name in asked)


def train_experiment(
    experiment: Experiment,
    collections: Sequence[str],
    plan: Plan,
    run: Run,
    executor: Executor = HERE,
) -> Table:
    """Train the experiment on `collections` as a run of all experiments would, and return a table
    of its out-of-fold scores."""
    choice = Choice(tuple(collections))
    if not list_jobs(experiment, plan, choice):
        raise InputError(
            f"{experiment.name}: the data has no labelled graphs of {', '.join(collections)}. "
            "Choose other collections or other data."
        )
    backlog = find_backlog([experiment], plan, run, choice)
    run_experiments(backlog, plan, run, executor, experiment.name)
    return _tabulate(experiment, run)


def _tabulate(experiment: Experiment, run: Run) -> Table:
    predicted = predictions.read(run.predictions(experiment.name, "out_of_fold"))
    labels, groups = predictions.read(run.labels), read_draws(run)
    table = make_table(f"{experiment.name}, out of fold: the mean over graphs")
    for name in ("Collection", "Seed", "Graphs", "Score", "95% interval"):
        table.add_column(name, justify="left" if name == "Collection" else "right", no_wrap=True)
    scores = [pl.DataFrame(schema=TABLE_SCHEMA)]
    for (collection, seed), part in predicted.group_by("collection", "seed", maintain_order=True):
        asked = labels.filter(pl.col("collection") == collection)
        scores.append(name_scores(score_predictions(part, asked), str(seed), groups))
    for (collection, seed), mean in means_by_member(pl.concat(scores)).items():
        cells = (str(mean.graphs), f"{mean.value:.3f}", show_interval(mean))
        table.add_row(collection, seed, *cells)
    return table
