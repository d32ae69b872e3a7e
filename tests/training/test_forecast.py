"""How long a run takes is said before anything is trained, and what it gives up to end in time."""

import dataclasses
import json
from pathlib import Path

import pytest
from rich.console import Console

from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import RidgeSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.executors.local import LocalExecutor
from solution.training.forecast import (
    PATIENCE,
    Forecast,
    RunBudget,
    SeenEnoughError,
    Stopwatch,
    choose_budget,
    forecast,
    list_budgets,
    recall_budget,
    show_forecast,
)
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from tests.conftest import REPOSITORY, FastSlow
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
    assert "all seeds" in done.stdout and "--hours changes nothing" in done.stdout


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


NET = Experiment("net", ("tile:xla",), TileGnnSettings(), seeds=(0, 1, 2))
TABLE = Experiment("table", ("tile:xla",), RidgeSettings())
FOUND = [Forecast("net", models=15, seconds=3600), Forecast("table", models=5, seconds=360)]


def choose(hours: float, workers: int = 1) -> RunBudget:
    return choose_budget(FOUND, [NET, TABLE], 5, hours, workers)


def test_seeds_go_first_then_folds_then_epochs() -> None:
    assert choose(16) == RunBudget(3, 5)  # 15 hours of the net, half an hour of the table
    assert choose(15) == RunBudget(2, 5)
    assert choose(6) == RunBudget(1, 5)
    assert choose(5) == RunBudget(1, 4)
    assert choose(3.5) == RunBudget(1, 3)
    assert choose(2) == RunBudget(1, 3, 0.5)  # of the net; a table has no epochs
    assert choose(0.7) == RunBudget(1, 3, 0.1)
    assert choose(8.5, workers=2) == RunBudget(3, 5)


def test_what_does_not_fit_at_all_is_refused_with_what_it_takes() -> None:
    with pytest.raises(InputError, match=r"0\.5 hours .* 1 seed instead of 3, 3 folds"):
        choose(0.5)


def test_every_budget_asks_for_less_than_the_one_before() -> None:
    budgets = list_budgets([NET, TABLE], 5)
    assert budgets[0] == RunBudget(3, 5) and not budgets[0].describe(budgets[0])
    asked = [(budget.seeds, budget.folds, budget.share) for budget in budgets]
    assert asked == sorted(set(asked), reverse=True)
    assert list_budgets([TABLE], 2)[1] == RunBudget(1, 2, 0.75)  # nothing else is left to give up


def test_what_is_cut_is_cut_in_every_worker_and_recalled(
    sample_store: Store, tmp_path: Path
) -> None:
    file = REPOSITORY / "tests" / "made" / "experiments" / "quick_tile_gnn.py"
    net = dataclasses.replace(find_experiment(str(file)), seeds=(0, 1))
    budget = RunBudget(1, 3, 0.5)
    cut = budget.apply([net])
    with open_experiments(cut, sample_store, tmp_path, scheme="architecture", folds=3) as opened:
        plan, run = opened
        run_experiments(find_backlog(cut, plan, run), plan, run, LocalExecutor(2))
    assert recall_budget(tmp_path, [net], 5) == budget
    assert recall_budget(tmp_path, [TABLE], 5) is None
    assert recall_budget(tmp_path / "elsewhere", [net], 5) is None
    places = Run.existing(tmp_path).jobs(net.name)
    assert len(places) == 3  # folds; one seed
    for place in places:
        record = json.loads((place / "model" / "model.json").read_text())
        assert record["settings"]["training"]["epochs"] == -(-net.ranker.training.epochs // 2)  # type: ignore[attr-defined]
