"""Long tables in parts: every fit leaves a file, so a table can be stopped and goes on.

A fit is one experiment, one collection, one fold, one seed. Its file is named by all that decides
it, so a fit that is asked for otherwise is another file. Scores are out of fold. There are three
ways (WAYS) to end a fit that stops early by its settings:

    timed      so many seconds, then the weights that were best on graphs that were held back
    patient    when that validation score has not risen for the net's own patience
    last       so many seconds on all graphs, then the last weights

Without seconds it runs the epochs of its settings. What never stops early stays as it is, and so do
trees and linear models. Seconds are those of the processor (benchmarks.timed_fits).
"""

import dataclasses
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.timed_fits import count_epochs, time_fits, unwrap
from solution.data.folders import find_files
from solution.domain.evaluated_configs import MAX_CONFIGS, choose_configs
from solution.domain.graph import Graph
from solution.domain.metrics import list_mle, ordered_pair_accuracy, top_k_slowdown
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.cost import measure
from solution.system.files import replace_file
from solution.system.processes import one_thread, open_pool
from solution.system.progress import bars, track
from solution.system.report import Report, silent
from solution.training.executors.base import Executor, Task
from solution.training.fit import measure_volatility
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.plan import Plan, make_plan
from solution.training.watch import ProgressBars

FOLDS = 2
WAYS = ("timed", "patient", "last")


def top_5_slowdown(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """What the best of the five first costs, over the best of all."""
    return top_k_slowdown(scores, runtimes, 5)


def standardised_list_mle(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """ListMLE of standardised scores, for those of different systems have different scales."""
    return list_mle((scores - scores.mean()) / max(float(scores.std()), 1e-9), runtimes)


MEASURES = {
    "OPA": ordered_pair_accuracy,
    "ListMLE": standardised_list_mle,
    "slowdown": top_5_slowdown,
}
NUMBERS = pl.List(pl.Float64())  # of a fit that reports none, polars would not know
TYPES = {
    "volatility": pl.Float64(),
    "loss_volatility": pl.Float64(),
    "curve_seconds": NUMBERS,
    "curve_scores": NUMBERS,
}


@dataclass(frozen=True)
class Fit:
    """One fit, and how long it may take."""

    name: str
    settings: RankerSettings
    collection: str
    fold: int
    seed: int
    seconds: float  # of training, of nets that stop early; 0: the epochs of their settings
    way: str = "timed"  # a name in WAYS
    configs: int = MAX_CONFIGS  # of a graph that are predicted, at most
    alone: bool = False  # in a process of its own, so that the peak of its memory is its own

    @property
    def file(self) -> str:
        """Named by everything that decides it."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        place = self.collection.replace(":", "-")
        return f"{self.name}.{place}.{self.fold}.{self.seed}.{digest}.parquet"


class Curve:
    """A Report that notes when each validation score was reached, and the losses."""

    def __init__(self) -> None:
        self.started = time.process_time()
        self.seconds: list[float] = []
        self.scores: list[float] = []
        self.losses: list[float] = []

    def __call__(
        self, done: int, total: int, note: str = "", score: float | None = None, **facts: Any
    ) -> None:
        if "loss" in facts:
            self.losses.append(float(facts["loss"]))
        if score is not None:
            self.seconds.append(time.process_time() - self.started)
            self.scores.append(float(score))

    @property
    def volatility(self) -> float | None:
        """How much the last ten scores move; None where there are fewer than two."""
        return measure_volatility(self.scores)


Stores = dict[bool, Path]  # of whole graphs, and of pruned ones


@dataclass(frozen=True)
class Fitting:
    """The work of a table, in any process that sees the stores: a fit, and its rows."""

    stores: Stores

    @cached_property
    def plans(self) -> dict[bool, Plan]:
        """Made once a process."""
        return {
            whole: make_plan(Store.open(store), "architecture", FOLDS)
            for whole, store in self.stores.items()
        }

    def __call__(self, fit: Fit, report: Report = silent) -> pl.DataFrame:
        """Do the fit."""
        return run(fit, self.plan_of(fit.settings))

    def plan_of(self, settings: RankerSettings) -> Plan:
        """The plan with the nodes that a ranker of the settings looks at."""
        return self.plans[settings.needed_hops is None]


def begin() -> None:
    """In a worker process of a fit that is alone: it has one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"


def prepare(data: Path, out: Path) -> Stores:
    """The stores of whole and of pruned graphs."""
    files = find_files(data)
    kinds = {True: Preparation(None), False: Preparation(1)}
    return {
        whole: prepare_store(files, out / ("whole" if whole else "pruned"), how).folder
        for whole, how in kinds.items()
    }


def run(fit: Fit, plan: Plan) -> pl.DataFrame:
    """A row for each graph of the fold: scores, and of the fit its cost and learning curve."""
    with one_thread():
        settings = limit(fit, plan)
        curve = Curve()
        with measure() as spent:
            args = (settings, plan, (fit.collection,), fit.fold, fit.seed)
            ranker = fit_without(*args, report=curve)
        seconds = time.process_time() - curve.started
        graphs = [thin_out(g, fit.configs) for g in held_out(plan, *place_of(fit), settings)]
        values = score_graphs(ranker, graphs, MEASURES.values())
    common = {
        "system": fit.name,
        "collection": fit.collection,
        "fold": fit.fold,
        "seed": fit.seed,
        "budget": fit.seconds,
        "seconds": seconds,
        "epochs": len(curve.scores) or count_epochs(ranker),
        "megabytes": spent.peak_megabytes,
        "volatility": curve.volatility,
        "loss_volatility": measure_volatility(curve.losses),
        "curve_seconds": curve.seconds,
        "curve_scores": curve.scores,
    }
    rows = [
        {**common, "graph": graph.name, **dict(zip(("score", *MEASURES), row, strict=True))}
        for graph, row in zip(graphs, values.tolist(), strict=True)
    ]
    return pl.DataFrame(rows, schema_overrides=TYPES)


def place_of(fit: Fit) -> tuple[str, int]:
    """The collection and the fold."""
    return fit.collection, fit.fold


def thin_out(graph: Graph, configs: int) -> Graph:
    """The graph with at most so many of its configurations, always the same ones."""
    return graph.select(choose_configs(graph.key, graph.num_configs, configs))


def limit(fit: Fit, plan: Plan) -> RankerSettings:
    """The settings with as many epochs as the seconds, and the way, ask for."""
    if not fit.seconds or not stops_early(fit.settings):
        return fit.settings
    rows = plan.training(*place_of(fit))
    epochs = time_fits(fit.settings, list(plan.load(rows, fit.settings))).epochs_in(fit.seconds)
    own = unwrap(fit.settings).training.patience
    patience = {"timed": epochs, "patient": own, "last": None}[fit.way]
    return with_training(fit.settings, epochs=epochs, patience=patience)


def stops_early(settings: RankerSettings) -> bool:
    """Whether it is a net that is trained until a validation score rises no more."""
    training = getattr(unwrap(settings), "training", None)
    return training is not None and training.patience is not None


def with_training(settings: Any, **values: Any) -> Any:
    """The settings of a net, wrapped or not, with these values of its training."""
    if hasattr(settings, "ranker"):
        return dataclasses.replace(settings, ranker=with_training(settings.ranker, **values))
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, **values))


def compute(
    fits: Sequence[Fit],
    stores: Stores,
    folder: Path,
    executor: Executor,
    title: str,
) -> pl.DataFrame:
    """The rows of all fits; those whose file is there are not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [fit for fit in fits if not (folder / fit.file).exists()]
    together = [fit for fit in missing if not fit.alone]
    work = Fitting({whole: store.absolute() for whole, store in stores.items()})
    tasks = [Task(f"{fit.name} {fit.collection} fold {fit.fold}", (fit,)) for fit in together]

    def keep_rows(number: int, rows: pl.DataFrame) -> None:
        keep(rows, folder / together[number].file)

    with bars() as progress:
        watch = ProgressBars(progress, len(tasks), title)
        executor.run(work, tasks, watch, keep_rows)
    with track([fit for fit in missing if fit.alone], f"{title}, each alone") as tracked:
        for fit in tracked:
            with open_pool(1, begin) as pool:
                keep(pool.submit(work, fit).result(), folder / fit.file)
    return read_parts(fits, folder)


def keep(rows: pl.DataFrame, path: Path) -> None:
    """Write the rows of a fit, all or nothing."""
    with replace_file(path) as temporary:
        rows.write_parquet(temporary)


def read_parts(fits: Sequence[Fit], folder: Path) -> pl.DataFrame:
    """The rows of the fits whose files are there."""
    paths = [folder / fit.file for fit in fits if (folder / fit.file).exists()]
    frames = [pl.read_parquet(path) for path in paths]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
