"""A session trains wherever it is told to: the same models, and it ends as quietly."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from solution.domain.predictions import PARTS
from solution.runs.folder import Run
from solution.sessions.session import Session
from solution.sessions.train_session import REFIT, Share, Trained, train_session
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.executors.cluster import RayExecutor
from tests.conftest import REPOSITORY
from tests.processes import RAY

TILES = "tile_lightgbm_001"
JOBS = [f"{TILES} tile:xla {what}" for what in ("fold 0", "fold 1", "all graphs")]


def train(store: Path, output: Path, **where: str) -> Trained:
    """A session that trains and packs one experiment on two folds."""
    output.mkdir(exist_ok=True)
    begun = time.monotonic()
    session = Session("day", "", store, output, output / "scratch", on_kaggle=True, begun=begun)
    share = Share(TILES, "tile:*", packed=REFIT)
    return train_session(session, share, num_folds=2, limit=True, **where)


def read_outputs(output: Path) -> Mapping[str, bytes]:
    """What the session predicts, and its bundle."""
    run = Run.existing(output / "run")
    paths = [output / "bundle.zip", *(run.predictions(TILES, part) for part in PARTS)]
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in paths}


def train_on_ray(stop_after: str, store: str, output: str) -> None:
    """A session in a separate process; it says what Ray was given and what is left to do.

    Args:
        stop_after: seconds of work after which the process is asked to end; empty: it is not.
    """
    done = RayExecutor.run

    def run(self: RayExecutor, work: Any, tasks: Any, *more: Any) -> None:
        print("given:", "; ".join(task.name for task in tasks))
        if stop_after:
            Timer(float(stop_after), os.kill, (os.getpid(), signal.SIGTERM)).start()
        done(self, work, tasks, *more)

    RayExecutor.run = run  # type: ignore[method-assign]
    trained = train(Path(store), Path(output), executor="ray")
    print("missing:", trained.missing)


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., str]:
    """What train_on_ray prints in a process that has not imported Ray for another cluster yet.

    It is forked, and so is what its Ray begins: both train, with libraries that are there already.
    """
    pytest.importorskip("ray")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        f"sys.executable = {str(RAY.stand_in)!r}\n"
        f"from {__name__} import train_on_ray\ntrain_on_ray(*sys.argv[1:])\n"
    )

    def run(*arguments: str | Path) -> str:
        done = RAY.run(script, *arguments, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_session_on_ray_trains_what_one_on_this_machine_trains(
    sample_store: Store, call: Callable[..., str], tmp_path: Path
) -> None:
    """Also the models of all graphs, by the same Ray."""
    assert train(sample_store.folder, tmp_path / "local").missing == ""
    printed = call("", sample_store.folder, tmp_path / "ray")
    assert f"given: {'; '.join(JOBS[:2])}\n" in printed
    assert f"given: {JOBS[2]}\n" in printed
    assert read_outputs(tmp_path / "ray") == read_outputs(tmp_path / "local")


def test_a_session_on_ray_ends_quietly_when_it_is_asked_to(
    sample_store: Store, call: Callable[..., str], tmp_path: Path
) -> None:
    """Ray has a handler of signals too, and what is raised while it waits comes back otherwise."""
    printed = call("0.5", sample_store.folder, tmp_path / "ray")
    assert "a signal" in printed
    assert "2 models" in printed


@pytest.mark.parametrize(
    ("where", "words"),
    [({"executor": "slurm"}, "executor local"), ({"address": "auto"}, "address auto")],
)
def test_another_executor_is_refused_before_anything_is_done(
    where: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        train(tmp_path / "nothing", tmp_path / "output", **where)
    assert list((tmp_path / "output").iterdir()) == []
