"""The fold loop: fit on all folds but one, predict the one that was left out and the test graphs.

The folder of a unit (solution.units) appears when it is complete and is never trained again, so a
run that was killed goes on after its last unit and ends with the same predictions.
"""

import json
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from solution.data.folds import Scheme, split_inner
from solution.data.plan import IS_LABELLED, IS_TEST, Plan
from solution.domain import predictions
from solution.domain.collection import NAMES, SAMPLE_SUBMISSION
from solution.domain.evaluated_configs import MAX_CONFIGS, choose_configs
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.models.base import Ranker
from solution.models.learning_curve import LearningCurve
from solution.parallel import count_places, run_watched
from solution.runs.folder import EXPERIMENTS, Run
from solution.store.lazy_graphs import LazyGraphs
from solution.store.store import Store
from solution.system.cost import measure
from solution.system.errors import InputError
from solution.system.files import remove, replace_file, replace_folder
from solution.system.parquet import read_by_graphs, write_batches
from solution.system.processes import one_thread
from solution.system.progress import bars, console
from solution.system.report import Report
from solution.units import Unit, find_twin, list_units, order
from solution.watch import ProgressBars, Watch

FIT = ("seconds", "peak_megabytes", "curve")  # of unit.json, about the fit
INNER_SHARE = 0.15  # of the training graphs, for early stopping


def describe_run(
    experiments: Sequence[Experiment], plan: Plan, scheme: Scheme, folds: int
) -> dict[str, Any]:
    """The settings of a run, as its record has them."""
    described = {item.name: item.describe() for item in experiments}
    return {EXPERIMENTS: described, "scheme": scheme, "folds": folds, **plan.settings()}


def save_plan(plan: Plan, run: Run) -> None:
    """Write the graphs with their folds, the labels and the sample submission into the run."""
    if plan.sample_submission is not None:
        with replace_file(run.folder / SAMPLE_SUBMISSION) as temporary:
            shutil.copyfile(plan.sample_submission, temporary)
    if run.labels.is_file():  # written last, so the graphs are there too
        return
    predictions.write(plan.graphs, run.graphs)
    predictions.write(plan.labels(), run.labels)


def run_experiments(
    experiments: Sequence[Experiment], plan: Plan, run: Run, workers: int | None = None
) -> None:
    """Train every unit that is not there yet; then gather each experiment's predictions."""
    units = [unit for experiment in experiments for unit in list_units(experiment, plan)]
    with bars() as progress:
        train_units(units, plan, run, ProgressBars(progress, len(units), "Training"), workers)
    for experiment in experiments:
        gather(list_units(experiment, plan), plan, run)


def train_units(
    units: Sequence[Unit], plan: Plan, run: Run, watch: Watch, workers: int | None = None
) -> None:
    """Train every unit that is not there yet.

    Args:
        workers: processes, by default one a GPU or a core. An experiment that was made in this
            process, rather than found by its name or file, is trained here.
    """
    missing = []
    for unit in order(units):
        if unit.folder(run).exists():
            remove(run.checkpoints(unit.folder(run)))
            watch.advance()
        else:
            missing.append(unit)
    count = min(workers or count_places(), len(missing))
    if count > 1 and all(unit.experiment.origin for unit in missing):
        tasks = [(unit.describe(), unit.address()) for unit in missing]
        run_watched(_train_there, tasks, watch, count, _begin, plan.graphs, plan.store, run)
        return
    for unit in missing:
        with watch.unit(unit.describe()) as report:
            train_unit(unit, plan, run, report)
        watch.advance()


_place: tuple[Plan, Run]  # of a worker process


def _begin(graphs: pl.DataFrame, store: Store, run: Run) -> None:
    global _place
    _place = Plan(graphs, store), run


def _train_there(
    origin: str, source: str, collection: str, fold: int, seed: int, report: Report
) -> None:
    experiment = find_experiment(origin)
    if experiment.source != source:
        raise InputError(
            f"{origin}: was changed while its models were trained. Give the changed experiment "
            "another name, or start its run afresh with --replace."
        )
    train_unit(Unit(experiment, collection, fold, seed), *_place, report)


def warn_about_gaps(plan: Plan) -> None:
    """Say which collections cannot be trained on, or not be held out."""
    for name in NAMES:
        labelled = plan.rows(name, IS_LABELLED)
        if plan.rows(name).is_empty():
            console.print(f"[yellow]{name}: no graphs here; it is left out.")
        elif labelled.is_empty():
            console.print(f"[yellow]{name}: no graph has labels; nothing can be trained on it.")
        elif not plan.folds(name):
            console.print(
                f"[yellow]{name}: {len(labelled)} labelled graph(s) of one architecture cannot be "
                "divided; one model learns from all and there is no out-of-fold score."
            )
        elif len(labelled) < 2 * len(plan.folds(name)):
            console.print(
                f"[yellow]{name}: only {len(labelled)} labelled graphs; scores mean little."
            )


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


def gather(units: Sequence[Unit], plan: Plan, run: Run) -> None:
    """Check the predictions of an experiment's units, and join them into its two files."""
    if not units:
        return
    experiment = units[0].experiment
    labels = predictions.read(run.labels)
    for part in predictions.PARTS:
        paths = [unit.folder(run) / f"{part}.parquet" for unit in units]
        for unit, path in zip(units, paths, strict=True):
            asked = _questions(unit, plan, labels, part)
            predictions.check_predictions(predictions.read(path), asked, str(path))
        joined = (
            pl.concat(frames.values()).sort(predictions.KEYS)
            for _, frames in read_by_graphs({str(path): path for path in paths})
        )
        write_batches(joined, predictions.SCHEMA, run.predictions(experiment.name, part))


def _questions(unit: Unit, plan: Plan, labels: pl.DataFrame, part: str) -> pl.DataFrame:
    """collection, graph, config of what the unit must have predicted."""
    if part == "test":
        return plan.test_questions(unit.collection)
    held_out = plan.held_out(unit.collection, unit.fold)
    return labels.drop("runtime").join(
        held_out, on=["collection", "graph"], how="semi", maintain_order="left"
    )


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
