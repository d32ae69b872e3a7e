"""Estimate how long a run will take before it starts, and reduce it to fit into a number of hours.

One fit of each experiment and group of collections is observed for some seconds. As many fits run
at once as in the run itself, because fits slow each other down. Later steps of a fit are assumed to
take as long as observed steps. To fit into the hours, a run first drops seeds, because they
change a score least; then folds, so that a model learns from fewer graphs; then epochs. A resumed
run keeps its reduction.

Cost models spend most of their time on state tables (solution.features.propagation.state_table):
the layouts and copies of each tensor in each configuration. All models of a run share the tables of
large graphs, so their time is counted once, extrapolated from few configurations of few graphs.
"""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table

from solution.domain.dividing import MAX_CONFIGS, choose_configs
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.features.propagation.state_table import MANY, state_tables
from solution.models.base import CostRanker, RankerSettings
from solution.models.nets.training_loop import list_visits
from solution.models.nets.training_settings import TrainingSettings
from solution.runs.folder import EXPERIMENTS, RECORD, read_run_record
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
from solution.training.plan import IS_LABELLED, IS_TEST, Plan
from solution.training.sites import Here, JobSpec
from solution.training.watch import ProgressBars

# seconds after which an observed fit is stopped, once it has done a step or sent two reports
PATIENCE = 20.0
# seconds until worker processes have started
WORKERS_SECONDS = 6.0
# Merging a run takes MERGING_SECONDS + number of predictions / MERGED_EACH_SECOND.
MERGING_SECONDS, MERGED_EACH_SECOND = 5.0, 500_000
# bytes on disk, in the job's and the experiment's file together
BYTES_OF_A_PREDICTION = 6
# To time predictions: fit on at most FEW graphs, predict at most TRIED configurations of a graph.
FEW, TRIED = 8, 2000
# proxy for a graph's prediction time
WORK = pl.col("nodes").cast(pl.Float64) * pl.col("configs")
# To time cost models, FITTED graphs are fitted, and state tables are computed for the graphs at
# the quantiles TABLED_AT of the number of nodes.
FITTED, TABLED_AT = 4, (0.25, 0.5, 0.75)
# A timed state table has at most max(FEWEST_TABLED, MOST_TABLED / nodes) configurations.
MOST_TABLED, FEWEST_TABLED = 1 << 19, 16
# Number of configurations that a job uses of a graph: all of a test graph, at most MAX_CONFIGS of a
# labelled one. LIMITED_WORK is the time proxy for them.
LIMITED = pl.when(IS_TEST).then(pl.col("configs")).otherwise(pl.col("configs").clip(0, MAX_CONFIGS))
LIMITED_WORK = pl.col("nodes").cast(pl.Float64) * LIMITED
# Folds are reduced to FEWEST_FOLDS at least; only then nets' epochs, to one of SHARES of the usual.
FEWEST_FOLDS, SHARES = 3, (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)


@dataclass(frozen=True)
class Observed:
    """The estimated time of a job, extrapolated from a short fit."""

    seconds: float  # to fit and predict, except for large graphs' state tables of a cost model
    table_seconds: float = 0.0  # seconds to compute a state table, per node and configuration


@dataclass(frozen=True)
class Forecast:
    """The estimated cost of an experiment's models for one group of collections."""

    experiment: str
    models: int
    seconds: float  # estimated seconds to train one model and predict with it
    predictions: int = 0  # number of predictions of all models together
    tables: float = 0.0  # seconds of the state tables that the models share
    collections: tuple[str, ...] = ()  # that each of the models ranks


def forecast(experiments: Sequence[Experiment], plan: Plan, slots: int) -> list[Forecast]:
    """Return an estimate for each experiment and group of collections, from observed fits. As many
    as `slots` fits run at once."""
    groups: dict[tuple[str, tuple[str, ...]], list[Job]] = defaultdict(list)
    for job in (job for experiment in experiments for job in list_jobs(experiment, plan)):
        groups[job.experiment.name, job.group].append(job)
    tasks = [Task(jobs[0].describe(), (JobSpec.of(jobs[0]),)) for jobs in groups.values()]
    observed: dict[int, Observed] = {}
    with bars() as progress:
        watch = ProgressBars(progress, len(tasks), "Watching the first steps")
        work = partial(estimate_job, Here(plan.graphs, plan.store))
        LocalExecutor(slots).run(work, tasks, watch, observed.__setitem__)
    tables = _share_tables(plan, groups, [observed[number] for number in range(len(groups))])
    found = []
    for number, ((name, group), jobs) in enumerate(groups.items()):
        predictions = sum(int(_find_predicted(job, plan)["configs"].sum()) for job in jobs)
        seconds = observed[number].seconds
        found.append(Forecast(name, len(jobs), seconds, predictions, tables[number], group))
    return found


def _share_tables(
    plan: Plan,
    groups: Mapping[tuple[str, tuple[str, ...]], Sequence[Job]],
    observed: Sequence[Observed],
) -> list[float]:
    """Return for each of `groups` its part of the seconds for large graphs' state tables: equal
    parts for the experiments on the same collections that use state tables, 0 for the others."""
    slowest: dict[tuple[str, ...], float] = defaultdict(float)
    sharing: dict[tuple[str, ...], int] = defaultdict(int)
    for (_, group), one in zip(groups, observed, strict=True):
        slowest[group] = max(slowest[group], one.table_seconds)
        sharing[group] += one.table_seconds > 0
    found = []
    for (_, group), one in zip(groups, observed, strict=True):
        rows = pl.concat([plan.rows(name, IS_LABELLED | IS_TEST) for name in group])
        kept = float(rows.filter(LIMITED_WORK >= MANY).select(LIMITED_WORK.sum()).item())
        found.append(slowest[group] * kept / sharing[group] if one.table_seconds else 0.0)
    return found


def estimate_job(site: Here, spec: JobSpec, _: Report) -> Observed:
    """Return the estimated time of a job's fit and predictions. A long fit is stopped and its
    duration extrapolated; the fitted model is discarded."""
    job, plan = spec.find(site), site.plan
    settings = job.experiment.ranker
    split = split_training(plan, job.group, job.fold, job.seed)
    with one_thread():
        if isinstance(settings.build(job.seed), CostRanker):
            return _observe_costs(job, plan, pl.concat(split))
        begin = time.monotonic()
        fit_on, validate_on = (plan.load(rows, settings) for rows in split)
        seconds = _observe_fit(job, fit_on, validate_on, begin)
        return Observed(seconds + _estimate_predictions(job, plan, split))


def _observe_fit(
    job: Job, fit_on: Sequence[Graph], validate_on: Sequence[Graph], begin: float
) -> float:
    """Return the estimated seconds of a fit that began at `begin`, by time.monotonic()."""
    stopwatch = Stopwatch()
    try:
        job.experiment.ranker.build(job.seed).fit(fit_on, validate_on, stopwatch)
    except SeenEnoughError:
        return stopwatch.extrapolate()
    return time.monotonic() - begin


def _observe_costs(job: Job, plan: Plan, rows: pl.DataFrame) -> Observed:
    """Return the estimated time of a cost model. It is fitted on a few graphs of median size, and
    on half of them, when their state tables exist already; the difference of the two times is the
    time of the additional graphs. The time of tables is measured separately."""
    settings = job.experiment.ranker
    few = rows.sort(LIMITED_WORK)[max(0, (len(rows) - FITTED) // 2) :][:FITTED]
    # keep the graphs alive: a graph's cached tables are freed with it
    graphs = [_take_few(graph) for graph in plan.load(few, settings)]
    ranker = settings.quick().build(job.seed)
    assert isinstance(ranker, CostRanker)
    ranker.fit(graphs[:-1] or graphs, graphs[-1:])  # compute the tables before the timing
    seconds, work = [], []
    for part in (graphs[: len(graphs) // 2], graphs):
        if part:
            seconds.append(_observe_fit(job, part[:-1] or part, part[-1:], time.monotonic()))
            sizes = [(graph.num_nodes, graph.num_configs) for graph in part]
            work.append(_count_work(settings, sizes))
    each = (seconds[-1] - seconds[0]) / max(1.0, work[-1] - work[0])
    if each <= 0:
        each = seconds[-1] / work[-1]
    all_work = _count_work(settings, list(rows.select("nodes", LIMITED).iter_rows()))
    begin = time.monotonic()
    for graph in graphs:
        ranker.predict(graph)
    predicting = time.monotonic() - begin
    asked = _find_predicted(job, plan)
    here = sum(graph.num_nodes * graph.num_configs for graph in graphs)
    predicting *= float(asked.select(WORK.sum()).item()) / here
    # Each model's predictions compute the tables of small graphs again, so their time is added.
    table_seconds = _time_tables(job, plan, rows.sort("nodes"), ranker.backend)
    small = float(asked.filter(WORK < MANY).select(WORK.sum()).item())
    fitting = max(0.0, seconds[-1] - each * work[-1]) + each * all_work
    return Observed(fitting + predicting + table_seconds * small, table_seconds)


def _count_work(settings: RankerSettings, sizes: Sequence[tuple[int, int]]) -> float:
    """Return a proxy for the time of a cost model's fit on graphs of these `sizes` (nodes,
    configurations): nodes times visits per epoch for a net, nodes times configurations for a
    kernel."""
    nodes, configs = np.array(sizes, dtype=float).T
    if isinstance(training := getattr(settings, "training", None), TrainingSettings):
        configs = np.bincount(list_visits(configs.astype(int), training), minlength=len(nodes))
    return max(1.0, float(nodes @ configs))


def _take_few(graph: Graph) -> Graph:
    """Return the graph with so few configurations that a state table takes seconds."""
    limit = min(MAX_CONFIGS, max(FEWEST_TABLED, MOST_TABLED // graph.num_nodes))
    if graph.num_configs <= limit:
        return graph
    return graph.select(choose_configs(graph.key, graph.num_configs, limit))


def _time_tables(job: Job, plan: Plan, rows: pl.DataFrame, backend: str) -> float:
    """Return the seconds to compute a state table, per node and configuration: the mean over graphs
    at the quantiles TABLED_AT of `rows`."""
    chosen = rows[sorted({int(share * len(rows)) for share in TABLED_AT})]
    found = []
    for graph in plan.load(chosen, job.experiment.ranker):
        begin = time.monotonic()
        configs = len(state_tables(backend)(_take_few(graph)).numbers)
        found.append((time.monotonic() - begin) / (graph.num_nodes * configs))
    return float(np.mean(found))


class SeenEnoughError(Exception):
    """Raised to end a fit that was observed for long enough."""


class Stopwatch:
    """A Report that stops a fit after PATIENCE seconds, and estimates the whole fit's seconds."""

    def __init__(self) -> None:
        self._begin = self._model = time.monotonic()  # when the fit and the current model began
        self._seen: list[tuple[float, float]] = []  # (time, steps done) at each report
        self._total = 0

    def __call__(self, done: float, total: int, *_: object, **__: object) -> None:
        if self._seen and done <= self._seen[-1][1]:  # the ranker has begun another model
            self._model, self._seen = self._seen[-1][0], []
        self._seen.append((time.monotonic(), done))
        self._total = total
        # One report inside the first step is not enough, because its time includes the setup.
        is_enough = done >= 1 or len(self._seen) > 1
        if is_enough and self._seen[-1][0] - self._begin > PATIENCE and done < total:
            raise SeenEnoughError

    def extrapolate(self) -> float:
        """Return the seconds of the whole fit, assuming that the current model is the last one."""
        (first, begun), (last, done) = self._seen[0], self._seen[-1]
        if done == begun:
            first, begun = self._model, 0
        return last - self._begin + (self._total - done) * (last - first) / (done - begun)


def _estimate_predictions(job: Job, plan: Plan, split: tuple[pl.DataFrame, pl.DataFrame]) -> float:
    """Return the estimated seconds of the job's predictions: the seconds of a briefly trained model
    for the graphs of median and of largest cost, scaled to all graphs."""
    asked = _find_predicted(job, plan).sort(WORK)
    if asked.is_empty():
        return 0.0
    settings = job.experiment.ranker.quick()
    ranker = settings.build(job.seed)
    fit_on, validate_on = (plan.load(rows.sort("configs")[:FEW], settings) for rows in split)
    ranker.fit(fit_on, validate_on)
    two = asked[sorted({len(asked) // 2, len(asked) - 1})]
    tried = two.with_columns(pl.col("configs").clip(0, TRIED))
    loaded = zip(plan.load(tried, settings), tried["configs"], strict=True)
    graphs = [graph.select(np.arange(wanted)) for graph, wanted in loaded]
    begin = time.monotonic()
    for graph in graphs:
        ranker.predict(graph)
    seconds = time.monotonic() - begin
    work, all_work = (float(rows.select(WORK.sum()).item()) for rows in (tried, asked))
    return all_work / max(1.0, work) * seconds


def _find_predicted(job: Job, plan: Plan) -> pl.DataFrame:
    """Return a row for each graph that the job predicts, with its number of `configs` predicted."""
    tests = pl.concat([plan.rows(name, IS_TEST) for name in job.collections])
    held_out = pl.concat([plan.held_out(name, job.fold) for name in job.collections])
    return pl.concat([tests, held_out.with_columns(pl.col("configs").clip(0, MAX_CONFIGS))])


def estimate_wall(found: Sequence[Forecast], workers: int, beside: float = 0.0) -> float:
    """Return the estimated seconds of a run. `beside`: seconds of the work before the training and
    after the merging."""
    merging = MERGING_SECONDS + sum(line.predictions for line in found) / MERGED_EACH_SECOND
    work = sum(line.models * line.seconds + line.tables for line in found) / workers
    # A run takes at least as long as its slowest model, which one worker trains alone.
    longest = max(line.seconds for line in found)
    return beside + merging + max(work, longest) + (WORKERS_SECONDS if workers > 1 else 0.0)


def show_forecast(found: Sequence[Forecast], plan: Plan, slots: int, startup: float = 0.0) -> Table:
    """Return a table of the times that a run with `slots` models at once will take, and of the disk
    space. `startup`: seconds of the work before the training and after the merging."""
    free = shutil.disk_usage(plan.store.folder).free / 2**30
    written = BYTES_OF_A_PREDICTION * sum(line.predictions for line in found) / 2**20
    table = make_table(
        f"What the run will take on this machine, {count(slots, 'model')} at once",
        "More workers are cores like these, here or of a cluster; models that stop early take "
        f"less. The store takes {plan.store.size / 2**20:,.0f} MB, predictions {written:,.0f} MB, "
        f"{free:,.0f} GB are free there.",
        names=("Stage",), numbers=("Models", "One model", "All of them"), texts=("Collections",),
    )  # fmt: skip
    for line in found:
        everything = spell((line.seconds * line.models + line.tables) / slots)
        ranked = ", ".join(line.collections)
        table.add_row(line.experiment, str(line.models), spell(line.seconds), everything, ranked)
    for number in sorted({slots, 1, 8, 100}):
        wall = spell(estimate_wall(found, number, startup))
        table.add_row(f"all with merging, {count(number, 'worker')}", "", "", wall)
    return table


@dataclass(frozen=True)
class RunBudget:
    """How much of the whole run is trained; a smaller budget takes less time."""

    seeds: int  # maximum number of seeds per experiment
    folds: int
    share: float = 1.0  # fraction of the usual epochs for which nets are trained

    def apply(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Return the experiments reduced to this budget."""
        return [item.cut(self.seeds, self.share) for item in experiments]

    def describe(self, whole: "RunBudget") -> str:
        """Return in words how this budget is smaller than `whole`; empty if it is not."""
        words = {
            f"{count(self.seeds, 'seed')} instead of {whole.seeds}": self.seeds < whole.seeds,
            f"{self.folds} folds instead of {whole.folds}": self.folds < whole.folds,
            f"{self.share:.0%} of the epochs of nets": self.share < whole.share,
        }
        return ", ".join(text for text, is_smaller in words.items() if is_smaller)


def list_budgets(experiments: Sequence[Experiment], folds: int) -> list[RunBudget]:
    """Return all budgets to try, from the whole run to the smallest."""
    seeds, fewest = max(len(item.seeds) for item in experiments), min(folds, FEWEST_FOLDS)
    fewer_seeds = [RunBudget(number, folds) for number in range(seeds, 0, -1)]
    fewer_folds = [RunBudget(1, number) for number in range(folds - 1, fewest - 1, -1)]
    return [*fewer_seeds, *fewer_folds, *(RunBudget(1, fewest, share) for share in SHARES)]


def choose_budget(
    found: Sequence[Forecast], experiments: Sequence[Experiment], folds: int, hours: float,
    workers: int, beside: float = 0.0,
) -> RunBudget:  # fmt: skip
    """Return the largest budget (the first of list_budgets) that fits into the hours. `found` and
    `folds` describe the whole run; `beside`: see estimate_wall. Raises InputError if even the
    smallest budget does not fit."""
    budgets, named = list_budgets(experiments, folds), {item.name: item for item in experiments}
    for budget in budgets:
        left = [_scale(line, named[line.experiment], budget, folds) for line in found]
        if (seconds := estimate_wall(left, workers, beside)) <= hours * 3600:
            return budget
    raise InputError(
        f"{hours:g} hours are not enough: with {budgets[-1].describe(budgets[0])} it takes "
        f"{spell(seconds)} on {count(workers, 'worker')} still. Give more --hours, or fewer "
        "--collection or --experiment."
    )


def _scale(line: Forecast, item: Experiment, budget: RunBudget, folds: int) -> Forecast:
    kept = len(item.seeds[: budget.seeds]) / len(item.seeds) * budget.folds / folds
    share = budget.share if item.ranker.shortened(budget.share) != item.ranker else 1.0
    return replace(line, models=max(1, round(line.models * kept)), seconds=line.seconds * share)


def is_recorded(experiments: Sequence[Experiment], settings: Mapping[str, Any]) -> bool:
    """Return whether a run's recorded `settings` (JSON) contain at least one of the experiments,
    and none of them with other settings."""
    described = {experiment.name: experiment.describe() for experiment in experiments}
    wanted, known = json.loads(json.dumps(described)), settings.get(EXPERIMENTS, {})
    there = wanted.keys() & known.keys()
    return bool(there) and all(wanted[name] == known[name] for name in there)


def recall_budget(folder: Path, experiments: Sequence[Experiment], folds: int) -> RunBudget | None:
    """Return the budget of the run in `folder`; None without a run, or if it matches no budget.
    `folds`: the number of folds of the whole run."""
    settings = read_run_record(folder)["settings"] if (folder / RECORD).is_file() else {}
    budgets = [b for b in list_budgets(experiments, folds) if b.folds == settings.get("folds")]
    return next((b for b in budgets if is_recorded(b.apply(experiments), settings)), None)
