"""What is said of a fit: how long a run takes, what is left of it, and its learning curve."""

import dataclasses
import io
import json
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console

from solution.data.folders import find_files
from solution.domain.collection import TILE
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.features.propagation import state_table
from solution.features.propagation.backend import Backend
from solution.models.linear import LinearRanker, RidgeSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.report import FitProgress, Report, silent
from solution.system.sealing import read_record
from solution.training.executors.local import LocalExecutor
from solution.training.failures import name_failure
from solution.training.fit import MAX_POINTS, LearningCurve, train_job
from solution.training.forecast import (
    PATIENCE,
    Forecast,
    RunBudget,
    SeenEnoughError,
    Stopwatch,
    _scale,
    choose_budget,
    estimate_wall,
    forecast,
    list_budgets,
    recall_budget,
    show_forecast,
)
from solution.training.jobs import find_backlog, list_jobs
from solution.training.opening import open_experiments, save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from solution.training.watch import LiveTable, LogLines
from tests.conftest import REPOSITORY, FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.made.run import make_run


def test_scores_are_kept_and_everything_is_passed_on() -> None:
    heard: list[FitProgress] = []
    curve = LearningCurve(lambda *given, **named: heard.append(FitProgress(*given, **named)))
    curve(1, 3, "half way", 0.25, is_recalled=True)
    curve(2, 3, loss=0.5, rate=10.0)
    curve(3, 3, score=0.123456789, measures={"opa": 0.75})
    assert curve.points() == [(1, 0.25), (3, 0.12346)]
    assert heard == [
        FitProgress(1, 3, "half way", 0.25, is_recalled=True),
        FitProgress(2, 3, loss=0.5, rate=10.0),
        FitProgress(3, 3, score=0.123456789, measures={"opa": 0.75}),
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
    plan = make_plan(sample_store, "architecture", 2, limit=True)
    names = ("nothing_001", "tile_lightgbm_001")
    experiments = [find_experiment(name).quick() for name in names]
    with open_run(tmp_path / "run", {"experiments": {}}) as run:
        save_split(plan, run)
        run_experiments(find_backlog(experiments, plan, run), plan, run)
        for experiment in experiments:
            job = list_jobs(experiment, plan)[0]
            folder = job.folder(run)
            curve = read_job(folder).curve
            assert bool(curve) == experiment.ranker.learns
            assert all(len(point) == 2 and point[0] >= 1 for point in curve)
            before = (folder / "out_of_fold.parquet").read_bytes()
            train_job(job, plan, run, silent)
            assert (folder / "out_of_fold.parquet").read_bytes() == before


@dataclasses.dataclass(frozen=True)
class UnfinishedSettings(RidgeSettings):
    """Settings of a fit that writes a checkpoint, then fails or diverges."""

    fails: bool = False

    def build(self, seed: int) -> LinearRanker:
        return Unfinished(self, seed)


class Unfinished(LinearRanker):
    settings: UnfinishedSettings
    folder = Path()

    def keep_checkpoints(self, folder: Path) -> None:
        self.folder = folder

    def fit(self, *given: Any, **named: Any) -> LinearRanker:
        super().fit(*given, **named)
        (self.folder / "checkpoint").write_text("of a long fit")
        if self.settings.fails:
            raise InputError("The GPU has no memory left.")
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        return np.full(graph.num_configs, np.nan)


@pytest.mark.parametrize("fails", [True, False])
def test_a_fit_that_fails_keeps_its_checkpoints_unless_it_diverged(
    fails: bool, tmp_path: Path, sample_store: Store
) -> None:
    plan = make_plan(sample_store, "architecture", 2, limit=True)
    experiment = Experiment(
        name="unfinished", collections=TILE, ranker=UnfinishedSettings(fails=fails)
    )
    with open_run(tmp_path / "run", {"experiments": {}}) as run:
        save_split(plan, run)
        with pytest.raises(InputError):
            train_job(list_jobs(experiment, plan)[0], plan, run, silent)
    assert bool(list(tmp_path.rglob("checkpoint"))) == fails


def test_a_full_gpu_is_one_line_that_says_what_to_do() -> None:
    failing = name_failure(find_experiment("tile_gnn_001"), "training fold 0")
    with pytest.raises(InputError, match="training fold 0.*--workers"), failing:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@dataclasses.dataclass(frozen=True)
class StoppedSettings(RidgeSettings):
    """Settings whose second fit is interrupted, as by Ctrl-C."""

    fits: ClassVar[int] = 0

    def build(self, seed: int) -> LinearRanker:
        type(self).fits += 1
        if type(self).fits == 2:
            raise KeyboardInterrupt
        return super().build(seed)


def test_what_is_trained_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    store = prepare_store(find_files(tmp_path / "data"), tmp_path / "store", Preparation())
    stopped = Experiment("stopped", ("tile:xla",), StoppedSettings())

    def train() -> None:
        opened = open_experiments([stopped], store, tmp_path / "run", scheme="graph", folds=3)
        with opened as (plan, run):
            run_experiments(find_backlog([stopped], plan, run), plan, run)

    with pytest.raises(KeyboardInterrupt):
        train()
    assert "Stopped: 1 of 3" in capsys.readouterr().err
    assert Run(tmp_path / "run").count_models() == 1
    train()
    assert Run(tmp_path / "run").count_models() == 3
    assert StoppedSettings.fits == 4  # the one that was there was not trained again


def test_the_time_left_counts_from_the_first_of_models_that_are_trained_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LogLines(4) as lines, ExitStack() as second:
        with lines.job("first"):
            time.sleep(0.5)
            second.enter_context(lines.job("second"))
        lines.advance()
    said = re.search(r"1 of 4  first in .*, about ([\d.]+) s left", capsys.readouterr().err)
    assert said is not None
    assert 0.7 <= float(said[1]) < 30  # three are left, two at once


def test_what_an_earlier_fit_did_takes_no_time_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said, is_said = [1000.0], [], threading.Event()

    def write(line: str) -> None:
        said.append(line)
        is_said.set()

    def go_on(report: Report) -> None:
        for epoch in range(1, 51):
            report(epoch, 100, "", 0.5, is_recalled=True)
        for epoch in (50.5, 51, 51.5, 52):
            now[0] += 0.5
            report(epoch, 100)

    monkeypatch.setattr("solution.training.watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr("solution.training.watch.QUIET_SECONDS", 1.0)
    table = LiveTable("mine", total=1)
    with table.job("fold 0") as report:
        go_on(report)
        shown = io.StringIO()
        Console(file=shown, width=100).print(table.render())
    assert re.search(r"52/100 .* 0:02 +0:48", shown.getvalue())
    now[0] = 1000.0
    with LogLines(1, writers=[write]) as lines, lines.job("fold 0") as report:
        go_on(report)
        assert is_said.wait(60)
    assert all(fact in said[0] for fact in ("52 of 100", "48 s"))


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
    lines = {line.collections: line for line in found if line.experiment == "nothing_001"}
    assert ("tile:xla",) in lines and ("layout:nlp:default",) in lines
    rows = [row.split() for row in shown.splitlines() if row.startswith("nothing_001")]
    assert {row[-1] for row in rows} == {collection for (collection,) in lines}
    assert "2 models" in shown and "100 workers" in shown and "GB" in shown


def test_cost_models_are_forecast_without_the_tables_of_all_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are timed on few graphs. Both experiments pay once for those of large graphs, of which
    a model sees 1,000 configurations if they are labelled, and all of a test graph."""
    for number in range(12):
        graph = make_layout_graph(number, 12 + 1000 * (number == 11), name=f"p{number}")
        write_graph(graph, tmp_path / "data")
    asked = make_layout_graph(99, 1050, name="asked", labelled=False)
    write_graph(asked, tmp_path / "data", "test")
    store = prepare_store(find_files(tmp_path / "data"), tmp_path / "store", Preparation(None))
    plan = make_plan(store, "graph", 3)
    names = ("layout_cost_net_001", "layout_cost_kernel_001")
    both = [dataclasses.replace(find_experiment(name).quick(), seeds=(0, 1)) for name in names]
    tabled = set()
    described = state_table._describe_states

    def describe(graph: Graph, backend: Backend) -> state_table.StateTable:
        tabled.add(graph.name)
        return described(graph, backend)

    monkeypatch.setattr(state_table, "_describe_states", describe)
    monkeypatch.setattr(LocalExecutor, "run", run_here)
    for line in forecast(both, plan, 1):
        assert line.seconds > 0 and line.models == 6 and line.tables == 0
    assert 0 < len(tabled) <= 7  # of twelve to learn from, and one to predict
    monkeypatch.setattr("solution.training.forecast.MANY", 1)
    monkeypatch.setattr("solution.training.forecast._time_tables", lambda *_: 1.0)
    shared = forecast(both, plan, 1)
    assert [line.tables for line in shared] == [8 * (11 * 12 + 1000 + 1050) / 2] * 2
    assert all(line.seconds < 60 for line in shared)
    few = [_scale(line, item, RunBudget(1, 3), 3) for line, item in zip(shared, both, strict=True)]
    assert [line.tables for line in few] == [line.tables for line in shared]
    assert estimate_wall(shared, 1) > shared[0].tables + shared[1].tables


def run_here(executor: LocalExecutor, work: Any, tasks: Any, watch: Any, done: Any) -> None:
    """Do the tasks in this process, where what is replaced counts."""
    for number, task in enumerate(tasks):
        done(number, work(*task.arguments, lambda *_: None))


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


def test_a_forecast_trains_nothing_a_run_what_is_left(fastslow: FastSlow, tmp_path: Path) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    words = ("run", "data", "--experiment", "linear_ridge_001", "--scheme", "graph", "--run", "out")
    done = fastslow(*words, "--estimate")
    assert done.returncode == 0, done.stderr
    assert "linear_ridge_001" in done.stdout and "100 workers" in done.stdout
    assert not list((tmp_path / "out").rglob("predictions.parquet"))
    assert not (tmp_path / "out" / "submission.csv").exists()

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 2
    assert "0.0001 hours" in done.stderr and "3 folds" in done.stderr
    assert not (tmp_path / "out" / "run.json").exists()

    done = fastslow(*words, "--hours", "1")
    assert done.returncode == 0, done.stderr
    assert "--hours 1: all" in done.stdout
    assert "10 models to train of 10." in done.stdout  # of doing nothing as well

    done = fastslow(*words, "--hours", "0.0001")
    assert done.returncode == 0, done.stderr
    assert "all seeds" in done.stdout and "--hours changes nothing" in done.stdout
    assert "0 models to train of 10." in done.stdout.splitlines()


def test_one_architecture_without_tests_is_foretold(fastslow: FastSlow, tmp_path: Path) -> None:
    """One model learns from all, and predicts nothing."""
    for number in range(2):
        write_graph(make_tile_graph(0, name=f"k{number}"), tmp_path / "data")
    done = fastslow("run", "data", "--experiment", "linear_ridge_001", "--estimate", "--hours", "5")
    assert done.returncode == 0, done.stderr
    assert "linear_ridge_001" in done.stdout and "--hours 5: all" in done.stdout


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


def test_cuts_reach_every_worker_and_are_recalled(sample_store: Store, tmp_path: Path) -> None:
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
