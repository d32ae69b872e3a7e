"""What kills and power cuts happen to: commands on a little data, and what they leave."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from tests.conftest import REPOSITORY
from tests.processes import TRAINING, Program, find_growing

EXPERIMENT = REPOSITORY / "tests" / "made" / "experiments" / "quick_checkpoints.py"
RECIPE = 'fallback = "nothing_001"\n[members]\nquick_checkpoints = 1\n'
WRITTEN_ALIKE = ("predictions.parquet", "ranking.parquet", "submission.csv", "labels.parquet")


def describe_run(store: Path, run: Path, workers: int = 1) -> tuple[str | Path, ...]:
    """The arguments of `fastslow`: a net with a checkpoint after every epoch, in two folds."""
    recipe = store.parent / "mine.toml"
    recipe.write_text(RECIPE)
    names = ("--experiment", EXPERIMENT, "--experiment", "nothing_001")
    options = ("--recipe", recipe, "--scheme", "graph", "--folds", "2")
    return ("run", store, "--run", run, *names, *options, "--workers", str(workers))


def find_checkpoints(run: Path) -> dict[Path, int]:
    """Those on the disk, and when they were written."""
    found = {}
    for path in find_growing(run, "checkpoint.safetensors"):
        with suppress(FileNotFoundError):  # its fit has just ended
            if path.parent.suffix == ".checkpoints":  # no half-written one
                found[path] = path.stat().st_mtime_ns
    return found


def list_results(run: Path) -> dict[str, bytes]:
    """What must be the same whatever happened meanwhile."""
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and (path.name in WRITTEN_ALIKE or path.parent.name == "model")
    }


def begin(*arguments: str | Path, cwd: Path) -> Program:
    """Begin a command, in a process group of its own."""
    return TRAINING.start(*arguments, cwd=cwd, group=0)


def kill(program: Program) -> None:
    """It and all that it began; workers end by themselves when it is gone."""
    workers = TRAINING.workers()
    os.killpg(program.pid, signal.SIGKILL)
    program.wait(30)
    psutil.wait_procs(workers, 30)
