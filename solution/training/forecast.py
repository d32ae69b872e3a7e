"""How long a run will take, before it starts: a model of every experiment is begun.

A fit is watched for some seconds, and the rest of its steps is taken to be as long as those that
were seen. Fits that stop early end sooner.
"""

import heapq
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import polars as pl
from rich.table import Table

from solution.domain.evaluated_configs import MAX_CONFIGS
from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.system.processes import one_thread
from solution.system.terminal import make_table, say
from solution.system.wording import count, spell
from solution.training.executors.local import BYTES_OF_A_WORKER, count_slots
from solution.training.fit import split_training
from solution.training.jobs import Job, list_jobs
from solution.training.plan import IS_TEST, Plan

PATIENCE = 20.0  # seconds in which a fit is watched; one step at least
FEW = 8  # graphs, the smallest, that a model learns from to be tried
TRIED = 3  # test graphs that are predicted
WORKERS_SECONDS = 6.0  # until they have imported what they need
MERGING_SECONDS = 5.0  # of the ensemble, its scores and the submission, of the sample
MERGED_EACH_SECOND = 500_000  # predictions, of large runs
BYTES_OF_A_PREDICTION = 6  # in a run's folder: of its job, and gathered
BRIEF_PATIENCE = 5.0  # where nobody asked for a forecast
MUCH = 256 << 20  # bytes of a store that is worth a forecast that nobody asked for
MACHINES = (1, 2, 8, 100)  # workers, for which it is said: of cores like these


@dataclass(frozen=True)
class Forecast:
    """What the models of an experiment take that learn from one group of collections."""

    experiment: str
    models: int
    fit_seconds: float  # of one model
    predict_seconds: float
    predictions: int = 0  # of all of them

    @property
    def seconds(self) -> float:
        """Of one model."""
        return self.fit_seconds + self.predict_seconds


def forecast(
    experiments: Sequence[Experiment], plan: Plan, patience: float = PATIENCE
) -> list[Forecast]:
    """Begin to fit a model of each group of collections, and predict a few graphs with it.

    Args:
        patience: seconds in which the models of a group are watched, as many as there is time for.
    """
    found = []
    for experiment in experiments:
        groups: dict[tuple[str, ...], list[Job]] = {}
        for job in list_jobs(experiment, plan):
            groups.setdefault(job.group, []).append(job)
        for jobs in groups.values():
            # Fits that stop early do so at another epoch each.
            tried = [jobs[place] for place in sorted({0, len(jobs) // 2, len(jobs) - 1})]
            fits: list[float] = []
            end = time.monotonic() + patience
            with one_thread():
                for job in tried:
                    if not fits or time.monotonic() < end:
                        fits.append(_watch_fit(job, plan, patience / len(tried)))
                predict_seconds = _foretell_predictions(jobs[0], plan)
            mean = sum(fits) / len(fits)
            predicted = sum(_count_predictions(job, plan) for job in jobs)
            found.append(Forecast(experiment.name, len(jobs), mean, predict_seconds, predicted))
    return found


def foretell_wall(found: Sequence[Forecast], workers: int, beside: float = 0.0) -> float:
    """Seconds of a run whose workers each take the next model until all are trained.

    Args:
        beside: seconds of what is done before and after the training.
    """
    begin = beside + (WORKERS_SECONDS if workers > 1 else 0.0)
    free = [begin] * workers
    for line in found:
        for _ in range(line.models):
            heapq.heapreplace(free, free[0] + line.seconds)
    return max(free)


def _foretell_predictions(job: Job, plan: Plan) -> float:
    tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
    tried = tests.sort("configs")[len(tests) // 2 :][:TRIED]
    share = _count_predictions(job, plan) / max(1, int(tried["configs"].sum()))
    return share * _time_predictions(job, tried, plan)


class _SeenEnoughError(Exception):
    """Ends a fit that was watched for long enough."""


class _Stopwatch:
    """A Report that ends the fit when its time is over, and says how long all of it would take."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
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
        if is_enough and self._seen[-1][0] - self._begin > self._patience and done < total:
            raise _SeenEnoughError

    def extrapolate(self) -> float:
        """Seconds of the whole fit, if no other model comes after the one that it is at."""
        (first, begun), (last, done) = self._seen[0], self._seen[-1]
        if done == begun:
            first, begun = self._model, 0
        return last - self._begin + (self._total - done) * (last - first) / (done - begun)


def _watch_fit(job: Job, plan: Plan, patience: float) -> float:
    settings, stopwatch = job.experiment.ranker, _Stopwatch(patience)
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    begin = time.monotonic()
    with suppress(_SeenEnoughError):
        ranker = settings.build(job.seed)
        ranker.fit(plan.load(fit_on, settings), plan.load(validate_on, settings), stopwatch)
        return time.monotonic() - begin
    return stopwatch.extrapolate()


def _time_predictions(job: Job, tried: pl.DataFrame, plan: Plan) -> float:
    """Seconds that a model takes for the graphs; it has learned for a moment."""
    settings = job.experiment.ranker.quick()
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    few, others = (
        plan.load(rows.sort("configs")[:FEW], settings) for rows in (fit_on, validate_on)
    )
    ranker = settings.build(job.seed)
    ranker.fit(few, others)
    begin = time.monotonic()
    for graph in plan.load(tried, settings):
        ranker.predict(graph)
    return time.monotonic() - begin


def _count_predictions(job: Job, plan: Plan) -> int:
    """Configurations that the model predicts: of the test graphs, and of those of its fold."""
    tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
    own = pl.concat([plan.held_out(name, job.fold) for name in job.collections])
    return int(tests["configs"].sum()) + int(own["configs"].clip(0, MAX_CONFIGS).sum())


def foretell_merging(found: Sequence[Forecast]) -> float:
    """Seconds of the ensemble, its scores and the submission."""
    return MERGING_SECONDS + sum(line.predictions for line in found) / MERGED_EACH_SECOND


def show_forecast(
    found: Sequence[Forecast], plan: Plan, workers: int | None, startup: float = 0.0
) -> Table:
    """The forecast as a table, with what the machine has.

    Args:
        startup: seconds that a run takes until it begins to train.
    """
    slots = workers or count_slots()
    free = shutil.disk_usage(plan.store.folder).free
    written = BYTES_OF_A_PREDICTION * sum(line.predictions for line in found)
    table = make_table(
        f"What the run will take on this machine, {slots} models at once",
        f"Of each group of collections up to three models were watched for {PATIENCE:.0f} seconds "
        "together; those that stop early take far less, and what else the machine does adds to "
        "it. More workers are cores like these, here or of a cluster. "
        f"The store takes {plan.store.size / 2**20:,.0f} MB, predictions "
        f"{written / 2**20:,.0f} MB, {free / 2**30:,.0f} GB are free there; a worker takes "
        f"at most {BYTES_OF_A_WORKER / 2**30:.0f} GB of memory.",
    )
    for name in ("Stage", "Models", "One model", "All of them"):
        table.add_column(name, justify="left" if name == "Stage" else "right", no_wrap=True)
    table.add_row("preparing the data", "", "", "is done")
    for name in dict.fromkeys(line.experiment for line in found):
        own = [line for line in found if line.experiment == name]
        models = sum(line.models for line in own)
        mean = sum(line.models * line.seconds for line in own) / models
        table.add_row(name, str(models), spell(mean), spell(foretell_wall(own, slots)))
    merging = foretell_merging(found)
    table.add_row("merging and writing", "", "", spell(merging))
    for number in sorted({slots, *MACHINES}):
        words = f"together, {count(number, 'worker')}"
        wall = foretell_wall(found, number, startup + merging)
        table.add_row(words, "", "", spell(wall), style="bold" if number == slots else "")
    return table


def foretell_briefly(
    experiments: Sequence[Experiment],
    plan: Plan,
    run: Run,
    slots: int | None,
    found: Sequence[Forecast] | None = None,
) -> str:
    """The first line of a run: how many models are left, and of much data how long it will take.

    Args:
        slots: how many are trained at once; None: nobody knows, elsewhere.
        found: what is known already of these experiments.
    """
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan)]
    left = Counter(job.experiment.name for job in jobs if not job.folder(run).exists())
    if not left:
        return f"All {count(len(jobs), 'model')} are trained."
    words = f"{count(left.total(), 'model')} to train" + (f", {slots} at once" if slots else "")
    if plan.store.size < MUCH or slots is None:
        return f"{words}; how long it takes is said as they are trained."
    if found is None:
        say(f"{words}. Watching the first steps of each kind, to say how long it will take ...")
        untrained = [experiment for experiment in experiments if left[experiment.name]]
        found = forecast(untrained, plan, BRIEF_PATIENCE)
    merging, all_of = foretell_merging(found), Counter(job.experiment.name for job in jobs)
    found = [
        replace(line, models=round(line.models * left[line.experiment] / all_of[line.experiment]))
        for line in found
    ]
    seconds = foretell_wall(found, slots, merging)
    return f"About {spell(seconds)} until everything is written, less where nets stop early."
