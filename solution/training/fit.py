"""Train one model on all folds but one, predict with it, and write both to the job's folder."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.domain import predictions
from solution.domain.dividing import MAX_CONFIGS, choose_configs
from solution.domain.graph import Graph
from solution.models.base import Ranker
from solution.models.catalogue import save_model
from solution.runs.fingerprint import fingerprint_code
from solution.runs.folder import Run
from solution.runs.job import MODEL, JobRecord, write_job
from solution.runs.record import list_versions
from solution.store.graph_file import LazyGraphs
from solution.system.errors import InputError
from solution.system.files import remove, replace_folder
from solution.system.memory import Cost, measure
from solution.system.processes import one_thread
from solution.system.report import FitProgress, Report
from solution.system.shelf import keeping
from solution.training.failures import check_shape, name_failure
from solution.training.folds import split_inner
from solution.training.jobs import Job
from solution.training.plan import IS_TEST, Plan

MAX_POINTS = 60  # approximate maximum number of recorded points of a learning curve
DIGITS = 5  # decimal digits of recorded scores and measures
LAST = 10  # the number of last scores from which volatility is computed


class DivergedError(InputError):
    """The fitted model is unusable, because its scores are NaN or infinite."""


class LearningCurve:
    """A Report that records the validation scores of a fit and forwards every report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._points: list[tuple[int, float]] = []
        self._measures: list[Mapping[str, float]] = []

    def __call__(self, *given: Any, **named: Any) -> None:
        """Forward the report. If it contains a score, record the score and the measures."""
        progress = FitProgress(*given, **named)
        if progress.score is not None:
            self._points.append((int(progress.done), round(float(progress.score), DIGITS)))
            self._measures.append(progress.measures or {})
        self._report(*given, **named)

    def points(self) -> list[tuple[int, float]]:
        """Return at most about MAX_POINTS points (step, validation score) in order of time, always
        with the first, the last and the first best point. If a ranker fits several models, one
        after the other, each restarts the step count."""
        return [self._points[index] for index in self._kept()]

    def measures(self) -> dict[str, list[float]]:
        """Return the values of each measure, such as the loss, at the steps of `points`, by name.
        A measure is left out if one of these values is missing or not finite."""
        kept = [self._measures[index] for index in self._kept()]
        found = {
            name: [round(float(row.get(name, np.nan)), DIGITS) for row in kept]
            for name in (kept[0] if kept else {})
        }
        return {name: values for name, values in found.items() if np.isfinite(values).all()}

    def volatility(self) -> float | None:
        """Return measure_volatility of the validation scores of the model fitted last."""
        steps = [step for step, _ in self._points]
        starts = [index for index in range(1, len(steps)) if steps[index] <= steps[index - 1]]
        return measure_volatility([score for _, score in self._points[max(starts, default=0) :]])

    def _kept(self) -> list[int]:
        scores = [score for _, score in self._points]
        if len(scores) <= MAX_POINTS:
            return list(range(len(scores)))
        every = -(-len(scores) // MAX_POINTS)
        return sorted({*range(0, len(scores), every), len(scores) - 1, scores.index(max(scores))})


def measure_volatility(scores: Sequence[float]) -> float | None:
    """Return the standard deviation of the last ten validation scores; None if fewer than two."""
    last = scores[-LAST:]
    return float(np.std(last)) if len(last) > 1 else None


INNER_SHARE = 0.15  # share of the training graphs that is used for early stopping

# replaces runtimes by a teacher's targets, and yields the graphs that the teacher can score
Teach = Callable[[Sequence[Graph]], Iterable[Graph]]


def train_job(
    job: Job,
    plan: Plan,
    run: Run,
    report: Report,
    teach: Teach | None = None,
    *,
    checkpoints: Path | None = None,
) -> None:
    """Fit the model, predict, write the job's folder, and remove its checkpoints.

    `checkpoints`: their folder; None: the job's default folder in the run. `teach`: replaces
    runtimes by a teacher's targets; the model then learns from test graphs, too.
    """
    checkpoints = checkpoints or run.checkpoints(job.folder(run))
    checkpoints.mkdir(parents=True, exist_ok=True)
    with keeping(fingerprint_code()):
        try:
            with one_thread(), name_failure(job.experiment, job.describe()):
                _train(job, plan, run, report, teach, checkpoints)
        # After a divergence the checkpoints are useless: the next start must begin without them.
        # After other errors, such as a GPU without free memory, it continues from them.
        except InputError as error:
            if isinstance(error, DivergedError) or not any(checkpoints.iterdir()):
                remove(checkpoints)
            raise
    remove(checkpoints)


def _train(
    job: Job, plan: Plan, run: Run, report: Report, teach: Teach | None, checkpoints: Path
) -> None:
    settings = job.experiment.ranker
    fit_on, validate_on = split_training(plan, job.group, job.fold, job.seed)
    ranker, curve = settings.build(job.seed), LearningCurve(report)
    ranker.keep_checkpoints(checkpoints)
    with measure() as cost:
        if teach is None:
            ranker.fit(plan.load(fit_on, settings), plan.load(validate_on, settings), curve)
        else:
            unseen = pl.concat([fit_on, *(plan.rows(name, IS_TEST) for name in job.group)])
            prune, learned = settings.preparation.prune, plan.load(unseen)
            taught = [prune(graph) for graph in teach(learned)]
            ranker.fit(taught, [prune(graph) for graph in teach(plan.load(validate_on))], curve)
        frames = {part: predict_part(ranker, job, plan, part) for part in predictions.PARTS}
    with replace_folder(job.folder(run)) as folder:
        (folder / MODEL).mkdir()
        save_model(ranker, settings, job.seed, folder / MODEL)
        for part, frame in frames.items():
            predictions.write(frame, folder / f"{part}.parquet", sealed=False)
        write_job(_record(job, cost, fit_on, validate_on, curve), folder)


def _record(
    job: Job, cost: Cost, fit_on: pl.DataFrame, validate_on: pl.DataFrame, curve: LearningCurve
) -> JobRecord:
    return JobRecord(
        experiment=job.experiment.name,
        source=job.experiment.source,
        collections=job.collections,
        learned_from=job.group,
        fold=job.fold,
        seed=job.seed,
        versions=list_versions(),
        seconds=round(cost.seconds, 3),
        peak_megabytes=round(cost.peak_megabytes, 1),
        fitted_on=_name_graphs(fit_on),
        validated_on=_name_graphs(validate_on),
        curve=curve.points(),
        files={},
        measures=curve.measures(),
        volatility=curve.volatility(),
    )


def predict_part(ranker: Ranker, job: Job, plan: Plan, part: str) -> pl.DataFrame:
    """Return a part's predictions (out_of_fold or test) for the job's collections. Raises
    InputError if a score is not finite."""
    frames = [predictions.SCHEMA.to_frame()]
    for collection in job.collections:
        if part == "test":
            rows, limit = plan.rows(collection, IS_TEST), None
        else:
            rows, limit = plan.held_out(collection, job.fold), MAX_CONFIGS
        frames += _predict(ranker, plan.load(rows, job.experiment.ranker), job, limit)
    frame = pl.concat(frames)
    _check_finite(frame, job, part)
    return frame


def _name_graphs(rows: pl.DataFrame) -> list[str]:
    """Return COLLECTION:GRAPH for each row."""
    return rows.select(pl.concat_str("collection", "graph", separator=":")).to_series().to_list()


def split_training(
    plan: Plan, collections: Sequence[str], fold: int, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of the graphs to fit on, and of the graphs for early stopping. Both leave out
    the graphs of the held-out `fold`."""
    training = pl.concat(plan.training(name, fold) for name in collections)
    mask = split_inner(training["group"].to_list(), INNER_SHARE, seed=1000 * seed + fold)
    return training.filter(~mask), training.filter(mask)


def _predict(ranker: Ranker, graphs: LazyGraphs, job: Job, limit: int | None) -> list[pl.DataFrame]:
    """Return a frame per graph with the scores of at most `limit` configurations (None: all). The
    ranker sees only these, because a score may depend on the other configurations; it sees no
    runtimes."""
    frames = []
    for graph in graphs:
        configs = choose_configs(graph.key, graph.num_configs, limit or graph.num_configs)
        chosen = graph if limit is None else graph.select(configs)
        if chosen.runtimes is not None:
            chosen = dataclasses.replace(chosen, runtimes=None)
        scores = ranker.predict(chosen)
        check_shape(scores, job.experiment, chosen)
        frames.append(predictions.make_frame(graph.key, configs, scores, job.fold, job.seed))
    return frames


def _check_finite(frame: pl.DataFrame, job: Job, part: str) -> None:
    bad = frame.filter(~pl.col("score").is_finite())
    if len(bad):
        raise DivergedError(
            f"{job.experiment.name}, {part}: {len(bad)} scores are NaN or infinite, such as of "
            f"{bad['collection'][0]}:{bad['graph'][0]}. The training diverged (lower its "
            "learning rate), or the model makes NaN of a value of this graph."
        )
