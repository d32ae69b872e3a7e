"""Compute long tables fit by fit: every fit leaves a file, so an interrupted table resumes.

A fit is one experiment, one collection, one fold of a scheme, one seed. Its file's name contains
everything that decides its result, so a fit with other settings has another file. Scores are out of
fold.
There are three ways (WAYS) to end a fit of a net with early stopping:

    timed      after the given seconds, with the weights that were best on held-back graphs
    patient    when that validation score has not risen for the net's own patience
    last       after the given seconds on all graphs, with the last weights

Without seconds it runs the epochs of its settings. Nets without early stopping, trees and linear
models are unchanged. Seconds are processor time (benchmarks.timed_fits).
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
import torch

from benchmarks.timed_fits import count_epochs, time_fits, unwrap
from solution.data.folders import find_files
from solution.domain.dividing import MAX_CONFIGS, choose_configs
from solution.domain.metrics import ordered_pair_accuracy, top_k_slowdown
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.nets import losses
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.files import replace_file
from solution.system.memory import measure
from solution.system.processes import one_thread, open_pool
from solution.system.progress import bars, track
from solution.system.report import Report, silent
from solution.training.executors.base import Executor, Task
from solution.training.fit import measure_volatility
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.folds import Scheme
from solution.training.plan import Plan, make_plan
from solution.training.watch import ProgressBars

FOLDS = 2
WAYS = ("timed", "patient", "last")


def top_5_slowdown(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Return how much slower the best of the first five is than the best of all."""
    return top_k_slowdown(scores, runtimes, 5)


def standardised_list_mle(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Return ListMLE of standardised scores, because the systems' scores have different scales."""
    standardised = (scores - scores.mean()) / max(float(scores.std()), 1e-9)
    columns = np.stack([standardised, runtimes])[:, :, None].astype(np.float64)
    return float(losses.list_mle(*torch.from_numpy(columns)))


MEASURES = {
    "OPA": ordered_pair_accuracy,
    "ListMLE": standardised_list_mle,
    "slowdown": top_5_slowdown,
}
NUMBERS = pl.List(pl.Float64())  # explicit: polars cannot infer it for a fit that reports none
TYPES = {
    "volatility": pl.Float64(),
    "loss_volatility": pl.Float64(),
    "curve_seconds": NUMBERS,
    "curve_scores": NUMBERS,
}


@dataclass(frozen=True)
class Fit:
    """A fit and its time limit."""

    name: str
    settings: RankerSettings
    collection: str
    fold: int
    seed: int
    seconds: float  # training time of nets with early stopping; 0: the epochs of their settings
    way: str = "timed"  # a name in WAYS
    configs: int = MAX_CONFIGS  # maximum configurations predicted per graph
    alone: bool = False  # in a separate process, to measure its peak memory
    scheme: Scheme = "architecture"  # what the folds keep together

    @property
    def file(self) -> str:
        """Name of the result's file, from everything that decides it."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        place = self.collection.replace(":", "-")
        return f"{self.name}.{place}.{self.fold}.{self.seed}.{digest}.parquet"


class Curve:
    """A Report that records the time of each validation score, and the losses."""

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
        """Return the volatility of the last ten scores; None if there are fewer than two."""
        return measure_volatility(self.scores)


Stores = dict[bool, Path]  # of whole and of pruned graphs


@dataclass(frozen=True)
class Fitting:
    """Computes a fit's rows, in any process that can read the stores."""

    stores: Stores

    @cached_property
    def opened(self) -> dict[bool, Store]:
        """The stores, opened once per process."""
        return {whole: Store.open(store) for whole, store in self.stores.items()}

    @cached_property
    def plans(self) -> dict[tuple[bool, Scheme], Plan]:
        """The plans that this process has needed so far."""
        return {}

    def __call__(self, fit: Fit, report: Report = silent) -> pl.DataFrame:
        """Compute a fit's rows."""
        return run(fit, self.plan_of(fit.settings, fit.scheme))

    def plan_of(self, settings: RankerSettings, scheme: Scheme = "architecture") -> Plan:
        """Return the scheme's plan whose graphs have the nodes that the ranker needs."""
        key = settings.needed_hops is None, scheme
        if key not in self.plans:
            self.plans[key] = make_plan(self.opened[key[0]], scheme, FOLDS)
        return self.plans[key]


def begin() -> None:
    """Limit the worker process of a single fit to one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"


def prepare(data: Path, out: Path) -> Stores:
    """Prepare the stores of whole and of pruned graphs."""
    files = find_files(data)
    kinds = {True: Preparation(None), False: Preparation(1)}
    return {
        whole: prepare_store(files, out / ("whole" if whole else "pruned"), how).folder
        for whole, how in kinds.items()
    }


def run(fit: Fit, plan: Plan) -> pl.DataFrame:
    """Return a row for each graph of the fold, with its scores and the fit's cost and learning
    curve."""
    with one_thread():
        settings = limit(fit, plan)
        curve = Curve()
        with measure() as spent:
            args = (settings, plan, (fit.collection,), fit.fold, fit.seed)
            ranker = fit_without(*args, report=curve)
        seconds = time.process_time() - curve.started
        held = held_out(plan, fit.collection, fit.fold, settings)
        # at most `fit.configs` configurations of each graph, always the same ones
        graphs = [g.select(choose_configs(g.key, g.num_configs, fit.configs)) for g in held]
        values = score_graphs(ranker, graphs, MEASURES.values())
    common = {
        "system": fit.name,
        "collection": fit.collection,
        "scheme": fit.scheme,
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
    groups = plan.held_out(fit.collection, fit.fold)["group"]  # in the order of the graphs
    rows = [
        {**common, "graph": graph.name, "group": group,
         **dict(zip(("score", *MEASURES), row, strict=True))}
        for graph, group, row in zip(graphs, groups, values.tolist(), strict=True)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides=TYPES)


def limit(fit: Fit, plan: Plan) -> RankerSettings:
    """Return the settings with the number of epochs that fits the seconds, and the way to stop."""
    if not fit.seconds or not stops_early(fit.settings):
        return fit.settings
    rows = plan.training(fit.collection, fit.fold)
    epochs = time_fits(fit.settings, list(plan.load(rows, fit.settings))).epochs_in(fit.seconds)
    own = unwrap(fit.settings).training.patience
    patience = {"timed": epochs, "patient": own, "last": None}[fit.way]
    return with_training(fit.settings, epochs=epochs, patience=patience)


def stops_early(settings: RankerSettings) -> bool:
    """Return whether it is a net with early stopping on a validation score."""
    training = getattr(unwrap(settings), "training", None)
    return training is not None and training.patience is not None


def with_training(settings: Any, **values: Any) -> Any:
    """Return the settings of a net, wrapped or not, with these values of its training."""
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
    """Return the rows of all fits; fits whose file exists are not repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [fit for fit in fits if not (folder / fit.file).exists()]
    together = [fit for fit in missing if not fit.alone]
    work = Fitting({whole: store.absolute() for whole, store in stores.items()})
    tasks = [
        Task(f"{fit.name} {fit.collection} {fit.scheme} fold {fit.fold}", (fit,))
        for fit in together
    ]

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
    """Write the rows of a fit, atomically."""
    with replace_file(path) as temporary:
        rows.write_parquet(temporary)


def read_parts(fits: Sequence[Fit], folder: Path) -> pl.DataFrame:
    """Return the rows of the fits whose files exist."""
    paths = [folder / fit.file for fit in fits if (folder / fit.file).exists()]
    frames = [pl.read_parquet(path) for path in paths]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
