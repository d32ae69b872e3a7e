"""`fastslow train` on the bundled sample: a table while it goes on, and a run that `run` knows."""

import dataclasses
import io
import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from solution.experiments.base import find_experiment
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.jobs import list_jobs
from solution.training.opening import open_experiments
from solution.training.out_of_fold import check_collections, train_experiment
from solution.training.watch import LiveTable, watch_jobs
from tests.conftest import REPOSITORY
from tests.processes import TRAINING

EXPERIMENT = REPOSITORY / "tests" / "made" / "experiments" / "quick_layout_gnn.py"


def train(store: Store, run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on two folds."""
    where = ("--data", store.folder, "--run", run)
    return TRAINING.run("train", EXPERIMENT, *where, "--folds", "2", *options)


def test_collections_are_trained_one_by_one_into_the_same_run(
    sample_store: Store, tmp_path: Path
) -> None:
    run, (first, second) = tmp_path / "run", find_experiment(str(EXPERIMENT)).collections
    done = train(sample_store, run, "--collection", first)
    assert done.returncode == 0, done.stderr
    assert first in done.stdout
    predictions = run / "quick_layout_gnn" / "out_of_fold" / "predictions.parquet"
    assert set(pl.read_parquet(predictions)["collection"]) == {first, second}  # one model's
    assert not list(run.rglob("*.checkpoints"))
    models = {path: path.stat().st_mtime_ns for path in run.rglob("job.json")}
    log = (run / "progress.log").read_text()
    assert all(line in log for line in done.stderr.splitlines() if "2 of 2" in line)
    assert "2 of 2" in log
    done = train(sample_store, run, "--collection", second)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in run.rglob("job.json")} == models


def test_a_collection_that_the_experiment_does_not_have_is_named(
    sample_store: Store, tmp_path: Path
) -> None:
    done = train(sample_store, tmp_path / "run", "--collection", "tile:xla")
    assert done.returncode == 2
    assert all(fact in done.stderr for fact in ("quick_layout_gnn", "tile:xla"))


def test_data_without_the_collection_is_said(sample_store: Store, tmp_path: Path) -> None:
    experiment = find_experiment("nothing_001")
    with open_experiments(
        [experiment], sample_store, tmp_path / "run", scheme="architecture", folds=2
    ) as (plan, run):
        empty = dataclasses.replace(plan, graphs=plan.graphs.filter(collection="tile:xla"))
        with pytest.raises(InputError, match="no labelled graphs of layout:xla:random"):
            train_experiment(find_experiment("layout_gnn_001"), ["layout:xla:random"], empty, run)


def test_collections_stand_in_the_order_of_the_experiment() -> None:
    found = find_experiment(str(EXPERIMENT))
    assert check_collections(found, []) == found.collections
    assert check_collections(found, found.collections[::-1]) == found.collections


def test_an_experiment_is_added_to_a_run(sample_store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("nothing_001", "tile_lightgbm_001"):
        with open_experiments(
            [find_experiment(name)], sample_store, folder, scheme="architecture", folds=2
        ):
            pass
    record = json.loads((folder / "run.json").read_text())
    assert list(record["settings"]["experiments"]) == ["nothing_001", "tile_lightgbm_001"]


def test_the_scores_of_every_collection_are_shown(sample_store: Store, tmp_path: Path) -> None:
    experiment = find_experiment("nothing_001")
    with open_experiments(
        [experiment], sample_store, tmp_path / "run", scheme="architecture", folds=2
    ) as (plan, run):
        table = train_experiment(experiment, experiment.collections, plan, run)
    assert table.row_count == len({job.collections for job in list_jobs(experiment, plan)})


def test_on_a_terminal_there_is_a_table_and_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    terminal = Console(file=shown, width=100, force_terminal=True)
    monkeypatch.setattr("solution.training.watch.console", terminal)
    with watch_jobs(1, {"mine": 1}, tmp_path / "progress.log", title="mine") as watch:
        with watch.job("mine fold 0") as report:
            report(3, 20, "", 0.5, loss=0.1, rate=9.0)
        watch.advance()
    assert "1 of 1" in shown.getvalue()
    assert all(fact in (tmp_path / "progress.log").read_text() for fact in ("mine fold 0", "0.500"))


@pytest.mark.parametrize("resumed_at", [0, 5])
def test_the_live_table_says_how_a_fit_goes(resumed_at: int) -> None:
    watch = LiveTable("mine", total=2)
    with watch.job("fold 0") as report:
        for epoch in range(resumed_at + 1, 9):
            report(epoch, 20, "", 0.5 + epoch / 100, loss=1 / epoch, rate=1234.0)
        shown = io.StringIO()
        Console(file=shown, width=100).print(watch.render())
    watch.advance()
    for text in ("fold 0", "8/20", "0.125", "0.580", "1,234", "0:00"):
        assert text in shown.getvalue()
    over = io.StringIO()
    Console(file=over, width=100).print(watch.render())
    assert "1 of 2" in over.getvalue()
