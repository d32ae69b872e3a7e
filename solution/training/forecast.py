"""How long a run will take, before it starts, and what it gives up to end in so many hours.

One fit of each experiment and group of collections is watched for some seconds, as many at once as
the run will train, because fits slow each other down. The rest of its steps is taken to be as long
as those that were seen; a fit that stops early ends sooner.

To end in time a run gives up seeds first, because they move a score least; then folds, with which a
model learns from fewer graphs; then epochs. A run keeps to what it began with: what it gave up is
found again in its record.
"""

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table

from solution.domain.evaluated_configs import MAX_CONFIGS
from solution.experiments.base import Experiment
from solution.runs.folder import EXPERIMENTS, RECORD, read_record
from solution.system.errors import InputError
from solution.system.processes import one_thread
from solution.system.progress import bars
from solution.system.report import Report
from solution.system.terminal import make_table
from solution.system.wording import count, spell
from solution.training.executors.base import Task
from solution.training.executors.local import LocalExecutor
from solution.training.fit import split_training
from solution.training.jobs import Job, list_jobs
from solution.training.plan import IS_TEST, Plan
from solution.training.sites import Here, JobAddress
from solution.training.watch import ProgressBars

PATIENCE = 20.0  # seconds in which a fit is watched; one step at least
WORKERS_SECONDS, MERGING_SECONDS = 6.0, 5.0  # until workers are there; of merging a small run
MERGED_EACH_SECOND = 500_000  # predictions, of large runs
BYTES_OF_A_PREDICTION = 6  # in a run's folder: of its job, and gathered
FEW, TRIED = 8, 2000  # graphs that a model learns from to be tried; configurations it predicts
WORK = pl.col("nodes").cast(pl.Float64) * pl.col("configs")  # what a prediction costs, about
FEWEST_FOLDS, SHARES = 3, (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)  # the least folds; shares of epochs


@dataclass(frozen=True)
class Forecast:
    """What the models of an experiment take that learn from one group of collections."""

    experiment: str
    models: int
    seconds: float  # of one model
    predictions: int = 0  # of all of them


def forecast(experiments: Sequence[Experiment], plan: Plan, slots: int) -> list[Forecast]:
    """Begin to fit models of each group of collections, and predict a few graphs with one.

    Args:
        slots: how many are fitted at once.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Job]] = {}
    for job in (job for experiment in experiments for job in list_jobs(experiment, plan)):
        groups.setdefault((job.experiment.name, job.group), []).append(job)
    answers: dict[int, float] = {}
    # An experiment that was made in this process is found in no other by its name.
    first = [jobs[0] for jobs in groups.values()]
    given = [JobAddress.of(job) if job.experiment.origin else job for job in first]
    tasks = [Task(job.describe(), (one,)) for job, one in zip(first, given, strict=True)]
    with bars() as progress:
        watch = ProgressBars(progress, len(tasks), "Watching the first steps")
        watcher = Watcher(Here(plan.graphs, plan.store))
        LocalExecutor(slots).run(watcher, tasks, watch, answers.__setitem__)
    return [
        Forecast(name, len(jobs), answers[number], sum(_count(job, plan) for job in jobs))
        for number, ((name, _), jobs) in enumerate(groups.items())
    ]


@dataclass(frozen=True)
class Watcher:
    """The work of a forecast, in any process of this machine."""

    site: Here

    def __call__(self, given: Job | JobAddress, report: Report) -> float:
        """Return the seconds that a job would take: its fit and its predictions."""
        job = given.find(self.site) if isinstance(given, JobAddress) else given
        with one_thread():
            return foretell_fit(job, self.site.plan) + foretell_predictions(job, self.site.plan)


class SeenEnoughError(Exception):
    """Ends a fit that was watched for long enough."""


class Stopwatch:
    """A Report that ends the fit when its time is over, and says how long all of it would take."""

    def __init__(self) -> None:
        self._begin = self._model = time.monotonic()  # of the fit, and of the model it is at
        self._seen: list[tuple[float, float]] = []  # when how many steps of it were done
        self._total = 0

    def __call__(self, done: float, total: int, *_: object, **__: object) -> None:
        if self._seen and done <= self._seen[-1][1]:  # the ranker fits another model
            self._model, self._seen = self._seen[-1][0], []
        self._seen.append((time.monotonic(), done))
        self._total = total
        # A part of a step says nothing alone: before it stands what is done once.
        is_enough = done >= 1 or len(self._seen) > 1
        if is_enough and self._seen[-1][0] - self._begin > PATIENCE and done < total:
            raise SeenEnoughError

    def extrapolate(self) -> float:
        """Return the seconds of the whole fit, if no other model comes after the present one."""
        (first, begun), (last, done) = self._seen[0], self._seen[-1]
        if done == begun:
            first, begun = self._model, 0
        return last - self._begin + (self._total - done) * (last - first) / (done - begun)


def foretell_fit(job: Job, plan: Plan) -> float:
    """Return the seconds that a fit would take, watched for PATIENCE of them and not kept."""
    settings, stopwatch = job.experiment.ranker, Stopwatch()
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    begin = time.monotonic()
    with suppress(SeenEnoughError):
        graphs = plan.load(fit_on, settings), plan.load(validate_on, settings)
        settings.build(job.seed).fit(*graphs, stopwatch)
        return time.monotonic() - begin
    return stopwatch.extrapolate()


def foretell_predictions(job: Job, plan: Plan) -> float:
    """Return the seconds of its predictions, out of fold and of the test graphs.

    A model that learned for a moment predicts the graph of median work and the one of most, which
    takes most of all time; 0 where there is nothing to predict.
    """
    asked = _find_predicted(job, plan).sort(WORK)
    if asked.is_empty():
        return 0.0
    tried = asked[sorted({len(asked) // 2, len(asked) - 1})]
    counts = tried["configs"].clip(0, TRIED)
    work = float(tried.with_columns(configs=counts).select(WORK.sum()).item())
    settings = job.experiment.ranker.quick()
    fit_on, validate_on = (
        plan.load(rows.sort("configs")[:FEW], settings)
        for rows in split_training(plan, job.group, job.fold, job.seed)
    )
    ranker = settings.build(job.seed)
    ranker.fit(fit_on, validate_on)
    graphs = [
        graph.select(np.arange(wanted))
        for graph, wanted in zip(plan.load(tried, settings), counts, strict=True)
    ]
    begin = time.monotonic()
    for graph in graphs:
        ranker.predict(graph)
    share = asked.select(WORK.sum()).item() / max(1.0, work)
    return float(share * (time.monotonic() - begin))


def _count(job: Job, plan: Plan) -> int:
    return int(_find_predicted(job, plan)["configs"].sum())


def _find_predicted(job: Job, plan: Plan) -> pl.DataFrame:
    """Rows of the graphs that it predicts, with as many configurations as it predicts of each."""
    tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
    own = pl.concat([plan.held_out(name, job.fold) for name in job.collections])
    return pl.concat([tests, own.with_columns(pl.col("configs").clip(0, MAX_CONFIGS))])


def foretell_wall(found: Sequence[Forecast], workers: int, beside: float = 0.0) -> float:
    """Return the seconds of a run with so many workers.

    Args:
        beside: seconds before and after, without what merging takes.
    """
    merging = MERGING_SECONDS + sum(line.predictions for line in found) / MERGED_EACH_SECOND
    work = sum(line.models * line.seconds for line in found) / workers
    longest = max(line.seconds for line in found)  # one model is trained by one worker
    return beside + merging + max(work, longest) + (WORKERS_SECONDS if workers > 1 else 0.0)


def show_forecast(found: Sequence[Forecast], plan: Plan, slots: int, startup: float = 0.0) -> Table:
    """Make the table of a forecast, with what the disk has.

    Args:
        startup: seconds that a run takes until it begins to train.
    """
    free = shutil.disk_usage(plan.store.folder).free
    written = BYTES_OF_A_PREDICTION * sum(line.predictions for line in found)
    table = make_table(
        f"What the run will take on this machine, {count(slots, 'model')} at once",
        "More workers are cores like these, here or of a cluster; models that stop early take "
        f"less. The store takes {plan.store.size / 2**20:,.0f} MB, predictions "
        f"{written / 2**20:,.0f} MB, {free / 2**30:,.0f} GB are free there.",
    )
    for name in ("Stage", "Models", "One model", "All of them"):
        table.add_column(name, justify="left" if name == "Stage" else "right", no_wrap=True)
    for line in found:
        everything = spell(line.seconds * line.models / slots)
        table.add_row(line.experiment, str(line.models), spell(line.seconds), everything)
    for number in sorted({slots, 1, 8, 100}):
        wall = spell(foretell_wall(found, number, startup))
        words = f"all with merging, {count(number, 'worker')}"
        table.add_row(words, "", "", wall, style="bold" if number == slots else "")
    return table


@dataclass(frozen=True)
class Budget:
    """What is trained of some experiments."""

    seeds: int  # of each experiment, at most
    folds: int
    share: float = 1.0  # of the epochs of nets

    def apply(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Return the experiments as they are trained."""
        return [item.cut(self.seeds, self.share) for item in experiments]

    def describe(self, whole: "Budget") -> str:
        """Say what is given up of the whole; empty where nothing is."""
        return ", ".join(
            words
            for mine, of_all, words in (
                (self.seeds, whole.seeds, f"{count(self.seeds, 'seed')} instead of {whole.seeds}"),
                (self.folds, whole.folds, f"{self.folds} folds instead of {whole.folds}"),
                (self.share, whole.share, f"{self.share:.0%} of the epochs of nets"),
            )
            if mine < of_all
        )


def list_budgets(experiments: Sequence[Experiment], folds: int) -> list[Budget]:
    """List all that may be trained, from the whole to the least."""
    seeds, fewest = max(len(item.seeds) for item in experiments), min(folds, FEWEST_FOLDS)
    fewer_seeds = [Budget(number, folds) for number in range(seeds, 0, -1)]
    fewer_folds = [Budget(1, number) for number in range(folds - 1, fewest - 1, -1)]
    return [*fewer_seeds, *fewer_folds, *(Budget(1, fewest, share) for share in SHARES)]


def choose_budget(
    found: Sequence[Forecast],
    experiments: Sequence[Experiment],
    folds: int,
    hours: float,
    workers: int,
    beside: float = 0.0,
) -> Budget:
    """Return the first budget that fits into the hours, of a forecast of all seeds and folds.

    Raises InputError where not even the least does.
    """
    budgets = list_budgets(experiments, folds)
    named = {item.name: item for item in experiments}
    for budget in budgets:
        left = [_scale(line, named[line.experiment], budget, folds) for line in found]
        seconds = foretell_wall(left, workers, beside)
        if seconds <= hours * 3600:
            return budget
    raise InputError(
        f"{hours:g} hours are not enough: with {budgets[-1].describe(budgets[0])} it takes "
        f"{spell(seconds)} on {count(workers, 'worker')} still. Give it more --hours, or choose "
        "collections with --collection, or fewer members with --experiment."
    )


def _scale(line: Forecast, item: Experiment, budget: Budget, folds: int) -> Forecast:
    kept = len(item.seeds[: budget.seeds]) / len(item.seeds) * budget.folds / folds
    share = budget.share if item.ranker.shortened(budget.share) != item.ranker else 1.0
    return replace(line, models=max(1, round(line.models * kept)), seconds=line.seconds * share)


def describe_as_recorded(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """Return by name what a run's record says of each, which went through JSON."""
    described = {experiment.name: experiment.describe() for experiment in experiments}
    return dict(json.loads(json.dumps(described)))


def recall_budget(folder: Path, experiments: Sequence[Experiment], folds: int) -> Budget | None:
    """Return what the run in the folder began with; None where there is none, or another one."""
    settings = read_record(folder)["settings"] if (folder / RECORD).is_file() else {}
    known = settings.get(EXPERIMENTS, {})
    for budget in list_budgets(experiments, folds):
        wanted = describe_as_recorded(budget.apply(experiments))
        there = wanted.keys() & known.keys()
        same = settings.get("folds") == budget.folds and bool(there)
        if same and all(wanted[name] == known[name] for name in there):
            return budget
    return None
