"""What a fit would take, watched from its first steps, and what predictions would."""

import time
from contextlib import suppress

import numpy as np
import polars as pl

from solution.domain.evaluated_configs import MAX_CONFIGS
from solution.training.fit import split_training
from solution.training.jobs import Job
from solution.training.plan import IS_TEST, Plan

FEW = 8  # graphs, the smallest, that a model learns from to be tried
TRIED = 2000  # configurations of a graph that are predicted
WORK = pl.col("nodes").cast(pl.Float64) * pl.col("configs")  # of a prediction


class SeenEnoughError(Exception):
    """Ends a fit that was watched for long enough."""


class Stopwatch:
    """A Report that ends the fit when its time is over, and says how long all of it would take."""

    def __init__(self, patience: float) -> None:
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
            raise SeenEnoughError

    def extrapolate(self) -> float:
        """Seconds of the whole fit, if no other model comes after the one that it is at."""
        (first, begun), (last, done) = self._seen[0], self._seen[-1]
        if done == begun:
            first, begun = self._model, 0
        return last - self._begin + (self._total - done) * (last - first) / (done - begun)


def foretell_fit(job: Job, plan: Plan, patience: float) -> float:
    """Seconds that a fit would take, watched for `patience` of them and not kept."""
    settings, stopwatch = job.experiment.ranker, Stopwatch(patience)
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    begin = time.monotonic()
    with suppress(SeenEnoughError):
        ranker = settings.build(job.seed)
        ranker.fit(plan.load(fit_on, settings), plan.load(validate_on, settings), stopwatch)
        return time.monotonic() - begin
    return stopwatch.extrapolate()


def foretell_predictions(job: Job, plan: Plan) -> float:
    """Seconds that its predictions would take, out of fold and of the test graphs."""
    asked = _find_predicted(job, plan).sort(WORK)
    # The largest graphs take most of all time.
    tried = asked[sorted({len(asked) // 2, len(asked) - 1})]
    work = tried.with_columns(pl.col("configs").clip(0, TRIED)).select(WORK.sum()).item()
    share = asked.select(WORK.sum()).item() / max(1, work)
    return float(share * _time_predictions(job, tried, plan))


def _find_predicted(job: Job, plan: Plan) -> pl.DataFrame:
    """Rows of the graphs that it predicts, with as many configurations as it predicts of each."""
    tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
    own = pl.concat([plan.held_out(name, job.fold) for name in job.collections])
    return pl.concat([tests, own.with_columns(pl.col("configs").clip(0, MAX_CONFIGS))])


def _time_predictions(job: Job, tried: pl.DataFrame, plan: Plan) -> float:
    """Seconds that a model takes for some configurations of the graphs; it has learned a moment."""
    settings = job.experiment.ranker.quick()
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    few, others = (
        plan.load(rows.sort("configs")[:FEW], settings) for rows in (fit_on, validate_on)
    )
    ranker = settings.build(job.seed)
    ranker.fit(few, others)
    counts = tried["configs"].clip(0, TRIED)
    graphs = [
        graph.select(np.arange(count))
        for graph, count in zip(plan.load(tried, settings), counts, strict=True)
    ]
    begin = time.monotonic()
    for graph in graphs:
        ranker.predict(graph)
    return time.monotonic() - begin


def count_predictions(job: Job, plan: Plan) -> int:
    """Predictions that are kept: of the test graphs, and some of each of its fold's."""
    return int(_find_predicted(job, plan)["configs"].sum())
