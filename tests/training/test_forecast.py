"""How long a run will take is said before anything is trained, and nothing is left behind."""

from pathlib import Path

import pytest
from rich.console import Console

from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import RidgeSettings
from solution.store.store import Store
from solution.training.forecast import PATIENCE, SeenEnoughError, Stopwatch, forecast, show_forecast
from solution.training.plan import make_plan
from tests.conftest import FastSlow
from tests.made.graphs import make_tile_graph, write_graph


def test_every_model_of_every_experiment_counts(sample_store: Store) -> None:
    plan = make_plan(sample_store, "architecture", 3)
    ridge = Experiment("ridge", ("tile:xla",), RidgeSettings(), seeds=(0, 1))
    found = forecast([ridge, find_experiment("nothing_001")], plan, 2)
    assert [(line.experiment, line.models) for line in found][0] == ("ridge", 6)  # folds and seeds
    assert all(line.seconds > 0 and line.predictions > 0 for line in found)

    console = Console(width=100)
    with console.capture() as capture:
        console.print(show_forecast(found, plan, 2))
    shown = capture.get()
    assert "2 models" in shown and "100 workers" in shown and "GB" in shown


def watch(moments: list[tuple[float, float]], total: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """What is foretold of a fit whose steps end at these seconds; the last one is enough."""
    now = [100.0]
    monkeypatch.setattr("solution.training.forecast.time.monotonic", lambda: now[0])
    stopwatch = Stopwatch()
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
    assert "linear_ridge_001" in done.stdout and "100 workers" in done.stdout
    assert not list((tmp_path / "out").rglob("predictions.parquet"))
    assert not (tmp_path / "out" / "submission.csv").exists()

    assert "--hours 5: all" in fastslow(*words, "--estimate", "--hours", "5").stdout

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 2
    assert "0.0001 hours" in done.stderr and "3 folds" in done.stderr
    assert not (tmp_path / "out" / "run.json").exists()

    done = fastslow(*words, "--hours", "1")
    assert done.returncode == 0, done.stderr
    assert "--hours 1: all" in done.stdout

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 0, done.stderr
    assert "all of" in done.stdout and "--hours changes nothing" in done.stdout


def test_one_architecture_without_a_test_graph_is_foretold_as_well(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    """One model learns from all, and predicts nothing."""
    for number in range(2):
        write_graph(make_tile_graph(0, name=f"k{number}"), tmp_path / "data")
    done = fastslow("run", "data", "--experiment", "linear_ridge_001", "--estimate", "--hours", "5")
    assert done.returncode == 0, done.stderr
    assert "linear_ridge_001" in done.stdout and "--hours 5" in done.stdout


def test_a_run_says_how_many_models_are_left(fastslow: FastSlow, tmp_path: Path) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    words = ("run", "data", "--experiment", "linear_ridge_001", "--scheme", "graph", "--run", "out")
    assert "10 models" in fastslow(*words).stdout  # of doing nothing as well
    assert "0 models" in fastslow(*words).stdout
