"""A unit keeps the validation scores that its ranker reported, and reporting changes nothing."""

from pathlib import Path

from solution.experiments.base import find_experiment
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.store import Store
from solution.system.report import silent
from solution.training.fit import train_job
from solution.training.jobs import list_jobs
from solution.training.learning_curve import MAX_POINTS, LearningCurve
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan


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
    ) -> None:
        heard.append((done, total, note, score, loss, rate))

    curve = LearningCurve(report)
    curve(1, 3, "half way", 0.25)
    curve(2, 3, loss=0.5, rate=10.0)
    curve(3, 3, score=0.123456789)
    assert curve.points() == [(1, 0.25), (3, 0.12346)]
    assert heard == [
        (1, 3, "half way", 0.25, None, None),
        (2, 3, "", None, 0.5, 10.0),
        (3, 3, "", 0.123456789, None, None),
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


def test_jobs_of_rankers_that_learn_have_a_curve(tmp_path: Path, sample_store: Store) -> None:
    """And the report that listens changes no byte of the predictions."""
    plan = make_plan(sample_store, "architecture", 2)
    experiments = [find_experiment(name) for name in ("nothing_001", "tile_lightgbm_001")]
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
