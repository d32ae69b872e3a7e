"""How long a run will take, before it starts: every experiment is tried with a tenth of a fit."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from rich.table import Table

from solution.experiments.base import Experiment
from solution.system.processes import one_thread
from solution.system.terminal import make_table
from solution.system.wording import spell
from solution.training.executors.local import BYTES_OF_A_WORKER, count_slots
from solution.training.fit import split_training
from solution.training.jobs import list_jobs
from solution.training.plan import IS_TEST, Plan

SHORTER = 10  # times: what RankerSettings.quick leaves
TRIED = 3  # test graphs that are predicted


@dataclass(frozen=True)
class Forecast:
    """What an experiment will take."""

    experiment: str
    models: int
    fit_seconds: float  # of one model
    predict_seconds: float


def forecast(experiments: Sequence[Experiment], plan: Plan) -> list[Forecast]:
    """Fit the first model of each with a tenth of its steps, and predict a few graphs."""
    found = []
    for experiment in experiments:
        jobs = list_jobs(experiment, plan)
        if not jobs:
            continue
        job, settings = jobs[0], experiment.ranker.quick()
        fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
        tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
        tried = tests.sort("configs")[len(tests) // 2 :][:TRIED]
        with one_thread():
            started = time.monotonic()
            ranker = settings.build(job.seed)
            ranker.fit(plan.load(fit_on, settings), plan.load(validate_on, settings))
            fitted = time.monotonic()
            for graph in plan.load(tried, settings):
                ranker.predict(graph)
            ended = time.monotonic()
        share = int(tests["configs"].sum()) / max(1, int(tried["configs"].sum()))
        seconds = SHORTER * (fitted - started), share * (ended - fitted)
        found.append(Forecast(experiment.name, len(jobs), *seconds))
    return found


def show_forecast(found: Sequence[Forecast], plan: Plan, workers: int | None) -> Table:
    """The forecast as a table, with what the machine has."""
    slots = workers or count_slots()
    free = shutil.disk_usage(plan.store.folder).free
    table = make_table(
        f"What the run will take on this machine, {slots} models at once",
        "Measured with a tenth of the steps each; the larger the data, the closer. The store takes "
        f"{plan.store.size / 2**30:.1f} GB, {free / 2**30:,.0f} GB are free there; a worker takes "
        f"at most {BYTES_OF_A_WORKER / 2**30:.0f} GB of memory.",
    )
    for name in ("Experiment", "Models", "One model", "All of them"):
        table.add_column(name, justify="left" if name == "Experiment" else "right", no_wrap=True)
    total = 0.0
    for line in found:
        one = line.fit_seconds + line.predict_seconds
        everything = one * line.models / min(slots, line.models)
        total += everything
        table.add_row(line.experiment, str(line.models), spell(one), spell(everything))
    table.add_row("together", "", "", spell(total), style="bold")
    return table
