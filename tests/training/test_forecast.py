"""How long a run will take is said before anything is trained, and nothing is left behind."""

from pathlib import Path

from rich.console import Console

from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import RidgeSettings
from solution.store.store import Store
from solution.training.forecast import forecast, show_forecast
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


def test_a_forecast_trains_nothing(fastslow: FastSlow, tmp_path: Path) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    words = ("run", "data", "--experiment", "linear_ridge_001", "--scheme", "graph", "--run", "out")
    done = fastslow(*words, "--forecast")
    assert done.returncode == 0, done.stderr
    assert "What the run will take on this machine" in done.stdout
    assert not list((tmp_path / "out").rglob("predictions.parquet"))
    assert not (tmp_path / "out" / "submission.csv").exists()
