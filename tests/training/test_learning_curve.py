"""A unit keeps the validation scores that its ranker reported, and reporting changes nothing."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from solution.experiments.base import find_experiment
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.store import Store
from solution.system.files import write_sealed
from solution.system.report import silent
from solution.system.sealing import read_record
from solution.training.fit import MAX_POINTS, LearningCurve, measure_volatility, train_job
from solution.training.jobs import list_jobs
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from tests.made.run import make_run

QUICK = "made/experiments/quick_layout_gnn.py"


def test_scores_are_kept_and_everything_is_passed_on() -> None:
    heard: list[tuple[object, ...]] = []

    def report(
        done: int,
        total: int,
        note: str = "",
        score: float | None = None,
        *,
        loss: float | None = None,
        rate: float | None = None,
        measures: Mapping[str, float] | None = None,
        is_recalled: bool = False,
    ) -> None:
        heard.append((done, total, note, score, loss, rate, measures, is_recalled))

    curve = LearningCurve(report)
    curve(1, 3, "half way", 0.25, is_recalled=True)
    curve(2, 3, loss=0.5, rate=10.0)
    curve(3, 3, score=0.123456789, measures={"opa": 0.75})
    assert curve.points() == [(1, 0.25), (3, 0.12346)]
    assert heard == [
        (1, 3, "half way", 0.25, None, None, None, True),
        (2, 3, "", None, 0.5, 10.0, None, False),
        (3, 3, "", 0.123456789, None, None, {"opa": 0.75}, False),
    ]


def test_a_long_curve_is_thinned_and_keeps_its_best_and_its_ends() -> None:
    curve = LearningCurve(silent)
    scores = [-abs(step - 334) / 1000 for step in range(1, 1001)]
    for step, score in enumerate(scores, start=1):
        curve(step, 1000, "", score)
    points = curve.points()
    assert len(points) <= MAX_POINTS + 2
    assert [points[0][0], points[-1][0]] == [1, 1000]
    assert max(points, key=lambda point: point[1]) == (334, 0.0)
    assert [step for step, _ in points] == sorted(step for step, _ in points)


def test_what_else_was_measured_is_kept_at_the_same_steps() -> None:
    curve = LearningCurve(silent)
    for step in range(1, 301):
        measures = {"opa": step / 300, "loss": np.inf if step == 300 else 1.0}
        curve(step, 300, "", 0.1, measures=measures if step > 0 else None)
    points, measures = curve.points(), curve.measures()
    assert list(measures) == ["opa"]  # a loss that was infinite once cannot be drawn
    assert measures["opa"] == [round(step / 300, 5) for step, _ in points]
    curve(301, 301, "", 0.1)
    assert curve.measures() == {}


def test_volatility_is_the_deviation_of_the_last_ten_scores() -> None:
    curve = LearningCurve(silent)
    assert curve.volatility() is None
    for step, score in enumerate([9.0, 9.0, *[0.0, 1.0] * 5], start=1):
        curve(step, 12, "", score)
    assert curve.volatility() == 0.5
    curve(1, 12, "", 3.0)  # another model
    assert curve.volatility() is None
    curve(2, 12, "", 4.0)
    assert curve.volatility() == 0.5
    scores = list(range(100))
    assert measure_volatility(scores) == pytest.approx(np.std(range(90, 100)))


def test_a_net_keeps_its_losses_and_ordered_pairs_in_its_record(
    tmp_path: Path, sample_store: Store
) -> None:
    plan = make_plan(sample_store, "architecture", 2)
    experiment = find_experiment(str(Path(__file__).parents[1] / QUICK))
    with open_run(tmp_path / "run", {"experiments": {}}) as run:
        save_split(plan, run)
        job = list_jobs(experiment, plan)[0]
        train_job(job, plan, run, silent)
        record = read_job(job.folder(run))
    assert sorted(record.measures) == ["loss", "opa", "tau", "validation_loss"]
    assert all(len(values) == len(record.curve) == 2 for values in record.measures.values())
    assert record.volatility == pytest.approx(np.std([score for _, score in record.curve]), 1e-3)


def test_a_record_of_before_is_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", collections=("tile:xla",))
    path = run.jobs("net_001")[0] / "job.json"
    old = read_record(path, "a job")
    del old["measures"], old["volatility"]
    write_sealed(old, path)
    record = read_job(path.parent)
    assert (record.measures, record.volatility) == ({}, None)


def test_jobs_of_rankers_that_learn_have_a_curve(tmp_path: Path, sample_store: Store) -> None:
    """And the report that listens changes no byte of the predictions."""
    plan = make_plan(sample_store, "architecture", 2)
    names = ("nothing_001", "tile_lightgbm_001")
    experiments = [find_experiment(name).quick() for name in names]
    with open_run(tmp_path / "run", {"experiments": {}}) as run:
        save_split(plan, run)
        run_experiments(experiments, plan, run)
        for experiment in experiments:
            job = list_jobs(experiment, plan)[0]
            folder = job.folder(run)
            curve = read_job(folder).curve
            assert bool(curve) == experiment.ranker.learns
            assert all(len(point) == 2 and point[0] >= 1 for point in curve)
            before = (folder / "out_of_fold.parquet").read_bytes()
            train_job(job, plan, run, silent)
            assert (folder / "out_of_fold.parquet").read_bytes() == before
