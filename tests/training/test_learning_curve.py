"""A unit keeps the validation scores that its ranker reported, and reporting changes nothing."""

import dataclasses
import io
import re
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from rich.console import Console

from solution.data.folders import find_files
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.linear import LinearRanker, RidgeSettings
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.report import Report, silent
from solution.system.sealing import read_record
from solution.training.failures import name_failure
from solution.training.fit import MAX_POINTS, LearningCurve, train_job
from solution.training.jobs import find_backlog, list_jobs
from solution.training.opening import open_experiments, save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from solution.training.watch import LiveTable, LogLines
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.run import make_run


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


def test_what_is_trained_is_counted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    store = prepare_store(find_files(tmp_path / "data"), tmp_path / "store", Preparation())
    stopped = Experiment("stopped", ("tile:xla",), StoppedSettings())
    options = {"scheme": "graph", "folds": 3}
    with (
        pytest.raises(KeyboardInterrupt),
        open_experiments([stopped], store, tmp_path / "run", **options) as (plan, run),  # type: ignore[arg-type]
    ):
        run_experiments(find_backlog([stopped], plan, run), plan, run)
    assert "Stopped: 1 of 3" in capsys.readouterr().err
    assert run.count_models() == 1
    with open_experiments([stopped], store, tmp_path / "run", **options) as (plan, run):  # type: ignore[arg-type]
        run_experiments(find_backlog([stopped], plan, run), plan, run)
    assert run.count_models() == 3
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
