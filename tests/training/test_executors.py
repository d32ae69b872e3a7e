"""Models that are trained beside each other: the same bytes, and nobody is left behind."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import psutil
import pytest
import torch

from solution.data.folders import SAMPLE, find_files
from solution.domain.collection import TILE
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.runs.folder import Run
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system import processes
from solution.system.errors import InputError
from solution.system.progress import bars
from solution.system.report import Report, silent
from solution.training.executors import local
from solution.training.executors.base import Task
from solution.training.executors.local import LocalExecutor, choose_gpu, count_slots
from solution.training.sites import ExperimentSpec, Here, JobSpec, LocalTrainer
from solution.training.watch import ProgressBars
from tests.conftest import REPOSITORY
from tests.processes import TRAINING, Program, find_growing

NO_STORE = Store(Path(), pl.DataFrame(), {})
Running = Program | subprocess.Popen[bytes]
EXPERIMENTS = REPOSITORY / "tests" / "made" / "experiments"


def describe_training(name: str, store: Store, run: Path, workers: int) -> list[str | Path]:
    """`fastslow train` of a file on two folds."""
    options = ["--data", store.folder, "--run", run, "--folds", "2", "--workers", str(workers)]
    return ["train", EXPERIMENTS / f"{name}.py", *options]


def start(name: str, store: Store, run: Path, workers: int, ending: str = "") -> Program:
    words = describe_training(name, store, run, workers)
    return TRAINING.start(*words, env={**os.environ, "ENDING": ending})


def test_predictions_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    files = find_files(SAMPLE / "npz" / "tile")[::10]
    store = prepare_store(files, tmp_path / "store", Preparation())
    for workers in (1, 2):
        process = start("quick_tile_gnn", store, tmp_path / str(workers), workers)
        _, words = process.communicate()
        assert process.returncode == 0, words
    files = [path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*.parquet")]
    assert len(files) > 8
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes(), file
    assert not list(tmp_path.rglob("*.checkpoints"))


@pytest.mark.parametrize(
    ("ending", "words"), [("killed", "worker process"), ("error", "the reason")]
)
def test_a_worker_that_fails_ends_the_others(
    ending: str, words: str, sample_store: Store, tmp_path: Path
) -> None:
    process = start("ends_badly", sample_store, tmp_path / "run", 2, ending)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 2
    assert words in printed
    assert "Traceback" not in printed
    assert not list(tmp_path.rglob("job.json"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_the_command(
    how: signal.Signals, sample_store: Store, tmp_path: Path
) -> None:
    process = start("ends_badly", sample_store, tmp_path / "run", 2, "never")
    await_workers(process, tmp_path / "run")
    assert len(TRAINING.workers()) == 2
    end(process, how, TRAINING.workers())


def test_workers_end_with_a_killed_command(sample_store: Store, tmp_path: Path) -> None:
    """It is started cold, with a server of workers of its own, which ends as well."""
    words = describe_training("ends_badly", sample_store, tmp_path / "run", 2)
    environment = {**os.environ, "ENDING": "never"}
    process = subprocess.Popen(
        [TRAINING.program, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        await_workers(process, tmp_path / "run")
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) > 2
        end(process, signal.SIGKILL, workers)


def await_workers(process: Running, run: Path) -> None:
    """Return when two of them have begun."""
    begun = run / "ends_badly" / "jobs"
    while len(find_growing(begun, "*.checkpoints")) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def end(process: Running, how: signal.Signals, workers: Sequence[psutil.Process]) -> None:
    """Send the signal to the command alone; its workers have to end as well."""
    process.send_signal(how)
    process.wait(timeout=30)
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_each_worker_has_a_gpu_of_those_that_may_be_used() -> None:
    assert [choose_gpu(place, 2, None) for place in range(3)] == ["0", "1", "0"]
    assert [choose_gpu(place, 2, "3,MIG-5") for place in range(2)] == ["3", "MIG-5"]


def test_an_experiment_that_is_changed_meanwhile_is_not_trained_on(tmp_path: Path) -> None:
    file = tmp_path / "quick_tile_gnn.py"
    shutil.copyfile(EXPERIMENTS / "quick_tile_gnn.py", file)
    source = find_experiment(str(file)).source
    file.write_text(file.read_text(encoding="utf-8") + "CHANGED = 1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"quick_tile_gnn.py: was changed"):
        LocalTrainer(Here(pl.DataFrame(), NO_STORE), Run(tmp_path))(
            JobSpec(ExperimentSpec(str(file), source, is_quick=False), TILE, TILE, 0, 0), silent
        )


@pytest.mark.parametrize(
    ("gpus", "cores", "gigabytes", "slots"),
    [
        (2, 4, 15, 2),  # two T4 of a Kaggle kernel
        (1, 16, 80, 8),
        (1, 16, 15, 3),  # as many as it has memory for
        (2, 16, 7, 2),  # on each
        (1, 2, 80, 1),
        (4, 2, 80, 4),  # one on each at least
        (2, 64, 0, 2),  # nobody says how much memory there is
    ],
)
def test_with_gpus_a_model_is_fitted_for_each_two_cores(
    gpus: int, cores: int, gigabytes: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "count_gpus", lambda: gpus)
    monkeypatch.setattr(local, "count_cores", lambda: cores)
    monkeypatch.setattr(local, "find_smallest_memory", lambda: gigabytes << 30)
    monkeypatch.setattr(local, "available_memory", lambda: 1 << 40)
    assert count_slots() == slots


def say_place(folder: Path, report: Report) -> tuple[str, int]:
    """Which GPU the worker may use, and the process that began it; once another has said so too."""
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    (folder / gpu).touch()
    ends = time.monotonic() + 100
    while len(list(folder.iterdir())) < 2 and time.monotonic() < ends:
        time.sleep(0.05)
    return gpu, psutil.Process().ppid()


def test_workers_with_a_gpu_are_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA refuses to begin in a process that was forked from one which has looked for it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert processes.choose_context(otherwise=processes.LIBRARIES) is processes.SPAWN
    found = {}
    with bars() as progress:
        watch = ProgressBars(progress, 2, "Working")
        tasks = [Task(str(number), (tmp_path,)) for number in range(2)]
        LocalExecutor(workers=2).run(say_place, tasks, watch, found.__setitem__)
    assert sorted(gpu for gpu, _ in found.values()) == ["0", "1"]
    assert {parent for _, parent in found.values()} == {os.getpid()}  # of a server it is another


def test_a_socket_without_room_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert processes.fork_server([]) is processes.SPAWN
