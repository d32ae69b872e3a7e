"""Long tables in parts: every fit leaves a file, so a table can be stopped and goes on.

A fit is one experiment, one collection, one fold, one seed. Its file is named by all that decides
it, so a fit that is asked for otherwise is another file. Scores are out of fold; a part of the
graphs that are learned from is held back to choose weights by, and gives the learning curve.
"""

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.data.folders import find_files
from solution.domain.metrics import ordered_pair_accuracy, top_k_slowdown
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.cost import measure
from solution.system.files import replace_file
from solution.system.processes import one_thread, open_pool
from solution.system.progress import track
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.plan import Plan, make_plan
from tests.benchmarks.timed_fits import time_fits, unwrap

FOLDS = 2
LAST = 10  # validation scores whose spread is the volatility


def top_5_slowdown(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """What the best of the five first costs, over the best of all."""
    return top_k_slowdown(scores, runtimes, 5)


MEASURES = {"OPA": ordered_pair_accuracy, "slowdown": top_5_slowdown}


@dataclass(frozen=True)
class Fit:
    """One fit, and how long it may take."""

    name: str
    settings: RankerSettings
    collection: str
    fold: int
    seed: int
    seconds: float  # of training, of nets that stop early
    patient: bool = False  # it stops by its own patience, at the latest after these seconds

    @property
    def file(self) -> str:
        """Named by everything that decides it."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        place = self.collection.replace(":", "-")
        return f"{self.name}.{place}.{self.fold}.{self.seed}.{digest}.parquet"


class Curve:
    """A Report that notes when each validation score was reached."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.seconds: list[float] = []
        self.scores: list[float] = []

    def __call__(
        self, done: int, total: int, note: str = "", score: float | None = None, **facts: Any
    ) -> None:
        if score is not None:
            self.seconds.append(time.perf_counter() - self.started)
            self.scores.append(float(score))

    @property
    def volatility(self) -> float | None:
        """How far the last scores spread; None where there are fewer than two."""
        last = self.scores[-LAST:]
        return float(np.ptp(last)) if len(last) > 1 else None


_plans: dict[bool, Plan]  # of a worker process; True: of whole graphs


def begin(stores: dict[bool, Path]) -> None:
    """Open the stores in a worker process, which has one thread."""
    global _plans
    os.environ["OMP_NUM_THREADS"] = "1"
    _plans = {
        whole: make_plan(Store.open(store), "architecture", FOLDS)
        for whole, store in stores.items()
    }


def prepare(data: Path, out: Path) -> dict[bool, Path]:
    """The stores of whole and of pruned graphs."""
    files = find_files(data)
    kinds = {True: Preparation(None), False: Preparation(1)}
    return {
        whole: prepare_store(files, out / ("whole" if whole else "pruned"), how).folder
        for whole, how in kinds.items()
    }


def run(fit: Fit) -> pl.DataFrame:
    """A row for each graph of the fold: scores, and of the fit its cost and learning curve."""
    plan = _plans[fit.settings.needed_hops is None]
    curve = Curve()
    with one_thread():
        settings = limit(fit, plan)
        curve.started = time.perf_counter()
        with measure() as spent:
            args = (settings, plan, (fit.collection,), fit.fold, fit.seed)
            ranker = fit_without(*args, report=curve)
        seconds = time.perf_counter() - curve.started
        graphs = list(held_out(plan, fit.collection, fit.fold, settings))
        values = score_graphs(ranker, graphs, MEASURES.values())
    common = {
        "system": fit.name,
        "collection": fit.collection,
        "fold": fit.fold,
        "seed": fit.seed,
        "seconds": seconds,
        "megabytes": spent.peak_megabytes,
        "volatility": curve.volatility,
        "curve_seconds": curve.seconds,
        "curve_scores": curve.scores,
    }
    rows = [
        {**common, "graph": graph.name, **dict(zip(("score", *MEASURES), row, strict=True))}
        for graph, row in zip(graphs, values.tolist(), strict=True)
    ]
    numbers = pl.List(pl.Float64())  # of a fit that reports none, polars would not know
    types = {"volatility": pl.Float64(), "curve_seconds": numbers, "curve_scores": numbers}
    return pl.DataFrame(rows, schema_overrides=types)


def limit(fit: Fit, plan: Plan) -> RankerSettings:
    """The settings with as many epochs as fill the time; what never stops early stays as it is."""
    training = getattr(unwrap(fit.settings), "training", None)
    if training is None or training.patience is None:
        return fit.settings
    rows = plan.training(fit.collection, fit.fold)
    epochs = time_fits(fit.settings, list(plan.load(rows, fit.settings))).epochs_in(fit.seconds)
    patience = training.patience if fit.patient else epochs
    return with_training(fit.settings, epochs=epochs, patience=patience)


def with_training(settings: Any, **values: Any) -> Any:
    """The settings of a net, wrapped or not, with these values of its training."""
    if hasattr(settings, "ranker"):
        return dataclasses.replace(settings, ranker=with_training(settings.ranker, **values))
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, **values))


def compute(
    fits: Sequence[Fit],
    stores: dict[bool, Path],
    folder: Path,
    workers: int,
    title: str,
    function: Callable[[Fit], pl.DataFrame] = run,
) -> pl.DataFrame:
    """The rows of all fits; those whose file is there are not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [fit for fit in fits if not (folder / fit.file).exists()]
    with open_pool(workers, begin, stores) as pool, track(missing, title) as tracked:
        running = {pool.submit(function, fit): fit for fit in missing}
        for _, done in zip(tracked, as_completed(running), strict=True):
            with replace_file(folder / running[done].file) as temporary:
                done.result().write_parquet(temporary)
    return read_parts(fits, folder)


def read_parts(fits: Sequence[Fit], folder: Path) -> pl.DataFrame:
    """The rows of the fits whose files are there."""
    paths = [folder / fit.file for fit in fits if (folder / fit.file).exists()]
    return pl.concat([pl.read_parquet(path) for path in paths]) if paths else pl.DataFrame()
