"""A kernel that is stopped at any moment goes on from its output, and ends as one that was not."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from solution.domain.predictions import PARTS
from solution.features.preparation import Preparation
from solution.runs.folder import Run
from solution.serving.bundle import load_bundle
from solution.sessions import session as sessions
from solution.sessions.record import read_session_record
from solution.sessions.train_session import REFIT, Share, train_session
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from submissions.kernels.notebooks import find_notebook, set_values
from tests.notebooks.conftest import open_kernels
from tests.notebooks.sandbox import Session, choose_files, read_text
from tests.processes import KernelServer

NAME = "3-train-tile-and-lightgbm"
VALUES = {"LIMIT": True, "NUM_FOLDS": 2, "EXPERIMENTS": "tile_*", "PACK": "refit"}
JOBS = 6  # two experiments, two folds, and each once more on all graphs


@pytest.fixture(scope="module")
def kernels() -> Iterator[KernelServer]:
    """Forks kernels of this environment."""
    with open_kernels(Path(sys.executable)) as server:
        yield server


def make_session(
    folder: Path, kernels: KernelServer, store: Store, earlier: Session | None = None
) -> Session:
    """A session on a prepared store; the output of an earlier one is among its inputs."""
    session = Session(folder, Path(sys.executable), (kernels.stand_in,))
    session.mount("datasets/tester/store", store.folder)
    if earlier is not None:
        session.mount(f"notebooks/tester/{NAME}", earlier.working)
    return session


def train_whole(folder: Path, store: Store) -> Path:
    """What the notebook does when nobody stops it, in this process; returns its output."""
    folders = (store.folder, folder, folder / "scratch")
    begun = time.monotonic()
    session = sessions.Session("whole", "", *folders, on_kaggle=True, begun=begun)
    trained = train_session(session, Share("tile_*", packed=REFIT), num_folds=2, limit=True)
    assert trained.missing == ""
    return folder


def run(session: Session) -> str:
    return read_text(session.run(set_values(find_notebook(NAME).read(), VALUES)))


def count_jobs(session: Session) -> int:
    return len(list(session.working.glob("run/*/jobs/*/fold-*/job.json")))


def send_when(session: Session, kernels: KernelServer, number: int, jobs: int) -> threading.Thread:
    """Send the signal to the kernel and its workers as soon as it has so many models."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while count_jobs(session) < jobs and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in [*kernels.programs(session.working), *kernels.workers()]:
            with suppress(psutil.NoSuchProcess):  # it may have ended meanwhile
                process.send_signal(number)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def read_predictions(output: Path) -> dict[str, bytes]:
    made = Run.existing(output / "run")
    return {
        f"{name} {part}": made.predictions(name, part).read_bytes()
        for name in made.experiments()
        for part in PARTS
    }


def test_killed_asked_to_stop_and_resumed(
    tmp_path_factory: pytest.TempPathFactory, kernels: KernelServer
) -> None:
    """SIGKILL in the first session, SIGTERM in the second; the third one finishes."""
    tmp_path = tmp_path_factory.mktemp("k")  # where its name is long, workers are not forked
    store = prepare_store(choose_files(), tmp_path / "store", Preparation(None))
    whole = train_whole(tmp_path / "whole", store)

    killed = make_session(tmp_path / "killed", kernels, store)
    watcher = send_when(killed, kernels, signal.SIGKILL, 1)
    with pytest.raises(InputError, match="notebook failed"):
        run(killed)
    watcher.join()
    assert 1 <= count_jobs(killed) < JOBS
    assert read_session_record(killed.working).state == "running"

    asked = make_session(tmp_path / "asked", kernels, store, killed)
    watcher = send_when(asked, kernels, signal.SIGTERM, count_jobs(killed) + 1)
    printed = run(asked)
    watcher.join()
    assert f"Models from earlier sessions: {count_jobs(killed)}" in printed
    assert "a signal" in printed
    assert "trained yet" in printed
    assert count_jobs(killed) < count_jobs(asked) < JOBS
    assert read_session_record(asked.working).state == "stopped"
    assert not (asked.working / "bundle.zip").exists()

    last = make_session(tmp_path / "last", kernels, store, asked)
    assert f"{NAME}: finished" in run(last)
    assert read_predictions(last.working) == read_predictions(whole)
    bundles = [(output / "bundle.zip").read_bytes() for output in (whole, last.working)]
    assert bundles[0] == bundles[1]
    record = load_bundle(last.working / "bundle.zip").record
    assert (record.refitted, len(record.members)) == (True, 2)
