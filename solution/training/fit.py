"""One model: fitted on all folds but one, what it predicts, and the folder that keeps both."""

import json
from collections.abc import Sequence

import numpy as np
import polars as pl

from solution.domain import predictions
from solution.domain.evaluated_configs import MAX_CONFIGS, choose_configs
from solution.domain.graph import Graph
from solution.models.base import Ranker
from solution.runs.folder import Run
from solution.store.lazy_graphs import LazyGraphs
from solution.system.cost import measure
from solution.system.errors import InputError
from solution.system.files import remove, replace_folder
from solution.system.processes import one_thread
from solution.system.report import Report
from solution.training.folds import split_inner
from solution.training.jobs import Unit, find_twin
from solution.training.learning_curve import LearningCurve
from solution.training.plan import IS_TEST, Plan

FIT = ("seconds", "peak_megabytes", "curve")  # of unit.json, about the fit


INNER_SHARE = 0.15  # of the training graphs, for early stopping


def train_unit(unit: Unit, plan: Plan, run: Run, report: Report) -> None:
    """Fit its model, or take a twin's; predict, write its folder, and remove its checkpoints."""
    checkpoints = run.checkpoints(unit.folder(run))
    checkpoints.mkdir(parents=True, exist_ok=True)
    try:
        with one_thread():
            _train(unit, plan, run, report)
    except InputError:  # the next start must not go on from what diverged
        remove(checkpoints)
        raise
    remove(checkpoints)


def _train(unit: Unit, plan: Plan, run: Run, report: Report) -> None:
    fit_on, validate_on = split_training(plan, unit.learns_from, unit.fold, unit.seed)
    held_out = plan.held_out(unit.collection, unit.fold)
    test = plan.rows(unit.collection, IS_TEST)
    ranker, curve = unit.experiment.ranker.build(unit.seed), LearningCurve(report)
    ranker.keep_checkpoints(run.checkpoints(unit.folder(run)))
    with measure() as cost:
        twin = find_twin(unit, run)
        if twin is None:
            ranker.fit(plan.load(fit_on), plan.load(validate_on), curve)
        else:
            ranker = ranker.load(twin.folder(run) / "model")
        predicted = {
            "out_of_fold": _predict(ranker, plan.load(held_out), unit, MAX_CONFIGS),
            "test": _predict(ranker, plan.load(test), unit, limit=None),
        }
    for part, frame in predicted.items():
        _check_finite(frame, unit, part)
    record = {
        "seconds": round(cost.seconds, 3),
        "peak_megabytes": round(cost.peak_megabytes, 1),
        "fitted_on": _name_graphs(fit_on),
        "validated_on": _name_graphs(validate_on),
        "curve": curve.points(),
    }
    if twin is not None:  # what the model cost and how it learned, as if it were this unit's alone
        trained = json.loads((twin.folder(run) / "unit.json").read_text(encoding="utf-8"))
        record |= {name: trained[name] for name in FIT} | {"model_of": twin.collection}
    with replace_folder(unit.folder(run)) as folder:
        (folder / "model").mkdir()
        ranker.save(folder / "model")
        for part, frame in predicted.items():
            predictions.write(frame, folder / f"{part}.parquet")
        (folder / "unit.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


def _name_graphs(rows: pl.DataFrame) -> list[str]:
    """COLLECTION:GRAPH of each row."""
    return rows.select(pl.concat_str("collection", "graph", separator=":")).to_series().to_list()


def split_training(
    plan: Plan, collections: Sequence[str], fold: int, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows to fit on and those to stop early on: never of the fold itself."""
    training = pl.concat(plan.training(name, fold) for name in collections)
    mask = split_inner(training["group"].to_list(), INNER_SHARE, seed=1000 * seed + fold)
    return training.filter(~mask), training.filter(mask)


def _predict(ranker: Ranker, graphs: LazyGraphs, unit: Unit, limit: int | None) -> pl.DataFrame:
    """Predict at most `limit` chosen configurations of each graph."""
    frames = [predictions.SCHEMA.to_frame()]
    for graph in graphs:
        configs = choose_configs(graph.key, graph.num_configs, limit or graph.num_configs)
        asked = graph if len(configs) == graph.num_configs else graph.select(configs)
        frames.append(_frame(graph, configs, ranker.predict(asked), unit))
    return pl.concat(frames)


def _check_finite(frame: pl.DataFrame, unit: Unit, part: str) -> None:
    """Refuse NaN before the model is kept, so that the next start trains it again."""
    bad = frame.filter(~pl.col("score").is_finite())
    if len(bad):
        raise InputError(
            f"{unit.experiment.name}, {part}: {len(bad)} scores are NaN or infinite, such as of "
            f"{bad['collection'][0]}:{bad['graph'][0]}. The training diverged: lower its learning "
            "rate."
        )


def _frame(graph: Graph, configs: np.ndarray, scores: np.ndarray, unit: Unit) -> pl.DataFrame:
    if np.shape(scores) != configs.shape:
        raise InputError(
            f"{unit.experiment.name}: predict returned scores of shape {np.shape(scores)} for "
            f"{graph.name}, expected {configs.shape}: one a configuration."
        )
    return pl.DataFrame({"config": configs, "score": scores}).select(
        pl.lit(graph.collection.name).alias("collection"),
        pl.lit(graph.name).alias("graph"),
        pl.col("config").cast(pl.Int32()),
        pl.lit(unit.fold, pl.Int16()).alias("fold"),
        pl.lit(unit.seed, pl.Int32()).alias("seed"),
        pl.col("score").cast(pl.Float32()),
    )
