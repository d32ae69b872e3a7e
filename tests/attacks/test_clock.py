"""A clock that is moved, and files whose times say anything, change nothing of what is trained."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.making import make_store
from tests.attacks.stories import (
    begin,
    describe_run,
    find_checkpoints,
    kill,
    list_results,
    wait_until,
)
from tests.processes import TRAINING

CENTURY = 100 * 365 * 86400
# The clock goes back an hour, or on a year, whenever somebody looks at it.
MOVED = """
import itertools, sys, time
now, jumps = time.time, itertools.cycle((-3600.0, 31536000.0, 0.0))
time.time = lambda: now() + next(jumps)
time.time_ns = lambda: int(time.time() * 1e9)
from solution.cli import main
sys.argv = ["fastslow", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_a_moved_clock_and_moved_times_of_files(tmp_path: Path) -> None:
    store = make_store(tmp_path).folder
    whole = TRAINING.run(*describe_run(store, tmp_path / "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    expected = list_results(tmp_path / "whole")
    for shift in (-CENTURY // 4, CENTURY):
        run = tmp_path / "run"
        program = begin(*describe_run(store, run), cwd=tmp_path)
        assert wait_until(lambda run=run: bool(find_checkpoints(run)), program)  # type: ignore[misc]
        kill(program)
        for path in (*run.rglob("*"), *store.rglob("*")):
            found = path.stat().st_mtime + shift
            os.utime(path, (found, found))
        words = list(map(str, describe_run(store, run)))
        done = subprocess.run(
            [sys.executable, "-c", MOVED, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert list_results(run) == expected
        shutil.rmtree(run)
