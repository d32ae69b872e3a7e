"""Experiments in users' files: a slip is one line, before anything is trained."""

import dataclasses
import io
import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from solution.data.folders import find_files
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.opening import open_experiments
from solution.training.out_of_fold import train_experiment
from solution.training.watch import LiveTable, watch_jobs
from tests.commands.test_first_minutes import make_data
from tests.conftest import REPOSITORY, FastSlow, assert_done, assert_refused
from tests.processes import TRAINING

BROKEN = '''
"""A model with a slip of the pen."""

from dataclasses import dataclass

import numpy as np

from solution.experiments.base import Experiment
from solution.models.table_ranker import TableSettings


@dataclass(frozen=True)
class Slip(TableSettings):
    def fit_rows(self, rows, ranks):
        return np.linalg.slove(rows.T @ rows, rows.T @ ranks)

    def score_rows(self, rows, weights):
        return rows @ weights


EXPERIMENT = Experiment(name="slip", collections=("tile:xla",), ranker=Slip())
'''
QUICK = ("--folds", "2", "--scheme", "graph", "--run", "out")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a few kernels."""
    folder = tmp_path_factory.mktemp("kernels")
    files = find_files(make_data(folder / "data"))
    return prepare_store(files, folder / "store", Preparation()).folder


def test_a_slip_in_ones_model_is_one_line(
    fastslow: FastSlow, kernels: Path, tmp_path: Path
) -> None:
    (tmp_path / "slip.py").write_text(BROKEN, encoding="utf-8")
    done = fastslow("run", kernels, "--experiment", "slip.py", *QUICK)
    assert_refused(done, "slip.py, line 15", "fit_rows", "AttributeError", "the training")


@pytest.mark.parametrize(("slip", "meant"), [
    ('collections="tile:xla"', "comma behind"), ('collections=("tile:xal",)', "mean tile"),
    ('collections=("tile:xla",), seeds=3', "seeds is 3"),
    ('collections=("tile:xla", "tile:xla")', "them twice"),
])  # fmt: skip
def test_what_could_never_be_trained_is_refused(
    slip: str, meant: str, fastslow_here: FastSlow, kernels: Path, tmp_path: Path
) -> None:
    text = (
        "from solution import Experiment\nfrom solution.models.linear import RidgeSettings\n"
        f"EXPERIMENT = Experiment(name='mine', {slip}, ranker=RidgeSettings())\n"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    assert_refused(fastslow_here("run", kernels, "--experiment", "mine.py", *QUICK), meant)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("learned", "scores", "found"), [
    # One score too many would shift the others to other configurations.
    ("rows.T @ ranks", "np.r_[[9.0], rows @ weights]", "(13,) of float64 for the 12 rows"),
    ("rows.T @ ranks", "1.0", "() of float64"),
    ("rows.T @ ranks", "np.full(len(rows), 'a')", "(12,) of <U1"),
    ("rows.T @ ranks", "rows[:, 0] * np.nan", "score_rows of Slip gave 12 of the 12"),
    ("rows.T @ ranks", "np.full(len(rows), 1e300)", "32 bits"),
    ("[[1], [1, 2]]", "rows[:, 0]", "fit_rows of"),
    ("sys.exit(3)", "rows[:, 0]", "slip.py, line 15, in fit_rows: SystemExit: 3"),
])  # fmt: skip
def test_what_a_model_of_ones_own_may_not_do_is_said_before_the_training(
    learned: str, scores: str, found: str, fastslow_here: FastSlow, kernels: Path, tmp_path: Path
) -> None:
    text = BROKEN.replace("np.linalg.slove(rows.T @ rows, rows.T @ ranks)", learned)
    text = text.replace("from dataclasses", "import sys; from dataclasses")
    (tmp_path / "slip.py").write_text(text.replace("rows @ weights", scores), encoding="utf-8")
    done = fastslow_here("train", "slip.py", "--data", kernels, *QUICK)
    assert_refused(done)
    assert f"{tmp_path / 'slip.py'}" in done.stderr
    assert found in done.stderr
    assert "in 0.0 s" not in done.stderr  # no model was trained


def test_two_of_one_name_are_refused(
    fastslow_here: FastSlow, kernels: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    text = BROKEN.replace('name="slip"', 'name="linear_ridge_001"')
    (tmp_path / "mine" / "linear_ridge_001.py").write_text(text, encoding="utf-8")
    both = ("--experiment", "linear_ridge_001", "--experiment", "mine/linear_ridge_001.py")
    assert_refused(fastslow_here("run", kernels, *both, *QUICK), "both", "linear_ridge_001")
    assert not (tmp_path / "out").exists()


EXPERIMENT = REPOSITORY / "tests" / "made" / "experiments" / "quick_layout_gnn.py"


def train(store: Store, run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on two folds."""
    where = ("--data", store.folder, "--run", run)
    return TRAINING.run("train", EXPERIMENT, *where, "--folds", "2", *options)


def test_collections_are_trained_one_by_one_in_a_run(sample_store: Store, tmp_path: Path) -> None:
    run, (first, second) = tmp_path / "run", find_experiment(str(EXPERIMENT)).collections
    unknown = train(sample_store, run, "--collection", "tile:xla")  # it is not for this one
    assert_refused(unknown, "quick_layout_gnn", "tile:xla")
    done = train(sample_store, run, "--collection", first)
    assert first in assert_done(done)
    predictions = run / "quick_layout_gnn" / "out_of_fold" / "predictions.parquet"
    assert set(pl.read_parquet(predictions)["collection"]) == {first, second}  # one model's
    assert not list(run.rglob("*.checkpoints"))
    models = {path: path.stat().st_mtime_ns for path in run.rglob("job.json")}
    log = (run / "progress.log").read_text()
    assert all(line in log for line in done.stderr.splitlines() if "2 of 2" in line)
    assert "2 of 2" in log
    assert_done(train(sample_store, run, "--collection", second))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("job.json")} == models


def test_data_without_the_collection_is_said(sample_store: Store, tmp_path: Path) -> None:
    experiment = find_experiment("nothing_001")
    with open_experiments(
        [experiment], sample_store, tmp_path / "run", scheme="architecture", folds=2
    ) as (plan, run):
        empty = dataclasses.replace(plan, graphs=plan.graphs.filter(collection="tile:xla"))
        with pytest.raises(InputError, match="labelled graphs"):
            train_experiment(find_experiment("layout_gnn_001"), ["layout:xla:random"], empty, run)


def test_an_experiment_is_added_to_a_run(sample_store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("nothing_001", "tile_lightgbm_001"):
        with open_experiments(
            [find_experiment(name)], sample_store, folder, scheme="architecture", folds=2
        ):
            pass
    record = json.loads((folder / "run.json").read_text())
    assert list(record["settings"]["experiments"]) == ["nothing_001", "tile_lightgbm_001"]


def test_a_terminal_has_a_table_and_the_log(
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
