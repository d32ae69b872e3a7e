"""How long a run will take is said before anything is trained, and nothing is left behind."""

from pathlib import Path

import pytest
from rich.console import Console

from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import RidgeSettings
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.report import silent
from solution.training.first_steps import SeenEnoughError, Stopwatch
from solution.training.fit import train_job
from solution.training.forecast import (
    PATIENCE,
    forecast,
    foretell_briefly,
    show_forecast,
)
from solution.training.jobs import list_jobs
from solution.training.plan import make_plan
from tests.conftest import FastSlow
from tests.made.graphs import make_tile_graph, write_graph


def test_every_model_of_every_experiment_counts(sample_store: Store) -> None:
    plan = make_plan(sample_store, "architecture", 3)
    ridge = Experiment("ridge", ("tile:xla",), RidgeSettings(), seeds=(0, 1))
    found = forecast([ridge, find_experiment("nothing_001")], plan)
    assert [(line.experiment, line.models) for line in found][0] == ("ridge", 6)  # folds and seeds
    assert all(line.fit_seconds >= 0 and line.predict_seconds > 0 for line in found)

    console = Console(width=100)
    with console.capture() as capture:
        console.print(show_forecast(found, plan, 2))
    shown = capture.get()
    assert "2 models at once" in " ".join(shown.split())
    assert "together" in shown
    assert "GB are free there" in " ".join(shown.split())


def watch(moments: list[tuple[float, float]], total: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """What is foretold of a fit whose steps end at these seconds; the last one is enough."""
    now = [100.0]
    monkeypatch.setattr("solution.training.first_steps.time.monotonic", lambda: now[0])
    stopwatch = Stopwatch(PATIENCE)
    for seconds, done in moments[:-1]:
        now[0] = 100 + seconds
        stopwatch(done, total, "a note", 0.5)
    now[0] = 100 + moments[-1][0]
    with pytest.raises(SeenEnoughError):
        stopwatch(moments[-1][1], total)
    return stopwatch.extrapolate()


def test_a_long_fit_is_watched_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    late = PATIENCE + 1
    # The first step also pays for what is done once.
    assert watch([(11, 1), (16, 2), (late, 3)], 60, monkeypatch) == late + 57 * 5
    # A single step says all that is known.
    assert watch([(late, 1)], 10, monkeypatch) == 10 * late
    # A part of a step comes after what is done once: another part says how long the rest takes.
    assert watch([(late, 0.1), (late + 2, 0.2)], 3, monkeypatch) == late + 2 + 2.8 * 20
    # A ranker of two models: the first is over, of the second one step was seen.
    assert watch([(1, 1), (2, 2), (late, 1)], 2, monkeypatch) == late + (late - 2)


def test_a_forecast_trains_nothing(fastslow: FastSlow, tmp_path: Path) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    words = ("run", "data", "--experiment", "linear_ridge_001", "--scheme", "graph", "--run", "out")
    done = fastslow(*words, "--estimate")
    assert done.returncode == 0, done.stderr
    assert "What the run will take on this machine" in done.stdout
    assert not list((tmp_path / "out").rglob("predictions.parquet"))
    assert not (tmp_path / "out" / "submission.csv").exists()

    assert "In --hours 5: all of it." in fastslow(*words, "--estimate", "--hours", "5").stdout

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 2
    assert "0.0001 hours are not enough: with 3 folds instead of 5" in done.stderr
    assert not (tmp_path / "out" / "run.json").exists()

    done = fastslow(*words, "--hours", "1")
    assert done.returncode == 0, done.stderr
    assert "All of it fits into --hours 1." in done.stdout
    assert "models to train" in done.stdout

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 0, done.stderr
    assert "As this run began: with all of it. --hours changes nothing of it." in done.stdout


def test_the_first_line_says_what_is_left_and_of_much_data_how_long(
    sample_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, run = make_plan(sample_store, "architecture", 3), Run(tmp_path)
    ridge = [Experiment("ridge", ("tile:xla",), RidgeSettings())]
    assert foretell_briefly(ridge, plan, run, 2).startswith("3 models to train, 2 at once; how")
    assert foretell_briefly(ridge, plan, run, None).startswith("3 models to train; how")
    first, second, *_ = list_jobs(ridge[0], plan)
    for job in list_jobs(ridge[0], plan):
        train_job(job, plan, run, silent)
    assert foretell_briefly(ridge, plan, run, 2) == "All 3 models are trained."
    # What is not as it was written is trained again, and so it is not there.
    (first.folder(run) / "job.json").unlink()
    assert foretell_briefly(ridge, plan, run, 1).startswith("1 model to train, 1 at once; how")
    (second.folder(run) / "test.parquet").write_bytes(b"damaged")
    assert foretell_briefly(ridge, plan, run, 1).startswith("2 models to train, 1 at once; how")
    monkeypatch.setattr("solution.training.forecast.MUCH", 0)
    assert foretell_briefly(ridge, plan, run, 2).startswith("About ")
