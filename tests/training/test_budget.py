"""What a run gives up to end in time is said, is what was asked for, and is found again."""

import dataclasses
import json
from pathlib import Path

import pytest

from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import RidgeSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.executors.local import LocalExecutor
from solution.training.forecast import (
    Forecast,
    RunBudget,
    choose_budget,
    list_budgets,
    recall_budget,
)
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.conftest import REPOSITORY

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
