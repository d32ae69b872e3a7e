"""Commands that are killed, whose clock moves or disk is full: later they end the same."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solution.system.files import TEMPORARY
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

KILLS = 20


@pytest.mark.slow
def test_kills_with_a_checkpoint_on_the_disk(tmp_path: Path) -> None:
    store, generator = make_store(tmp_path).folder, random.Random(0)
    done = TRAINING.run(*describe_run(store, tmp_path / "whole"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = list_results(tmp_path / "whole")
    run, kills, ended = tmp_path / "killed", 0, 0
    while kills < KILLS or ended == 0:
        program = begin(*describe_run(store, run), cwd=tmp_path)
        before = find_checkpoints(run)
        may_be_killed = kills < KILLS and wait_until(
            lambda before=before: find_checkpoints(run).items() - before.items(),  # type: ignore[misc]
            program,
        )
        if may_be_killed:
            time.sleep(generator.random() * 0.03)
            kill(program)
            kills += bool(find_checkpoints(run))
            continue
        assert program.wait(120) == 0, program.communicate()[1]
        assert list_results(run) == expected, f"after {kills} kills"
        ended += 1
        if kills < KILLS:
            shutil.rmtree(run)
    assert len(expected) > 6


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


SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # of what the command writes that there is room for
PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, whose size is set by `resize`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def resize(disk: Path, size: int) -> None:
    """Give it so many bytes in all."""
    options = f"remount,size={max(PAGE, size)}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True, capture_output=True)


def fill(
    disk: Path,
    arguments: tuple[str | Path, ...],
    results: Callable[[], dict[str, bytes]],
    expected: dict[str, bytes],
    share: float,
) -> None:
    pages = sum(-(-len(content) // PAGE) for content in expected.values())
    resize(disk, int(share * pages * PAGE))
    done = TRAINING.run(*arguments, cwd=disk.parent)
    assert done.returncode == 2, f"{share}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert "space left" in done.stderr
    assert not list(disk.rglob(f"{TEMPORARY}*"))
    resize(disk, 64 << 20)
    again = TRAINING.run(*arguments, cwd=disk.parent)
    assert again.returncode == 0, f"{share}: {again.stderr}"
    assert results() == expected


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_a_run(share: float, disk: Path, tmp_path: Path) -> None:
    store, run = make_store(tmp_path).folder, disk / "run"
    whole = TRAINING.run(*describe_run(store, tmp_path / "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    expected = list_results(tmp_path / "whole")
    fill(disk, describe_run(store, run), lambda: list_results(run), expected, share)
