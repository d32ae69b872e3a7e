"""Runs that are killed, crowded or without room, whose clock moves: later they end the same."""

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from solution.system.files import TEMPORARY
from tests.attacks.making import make_store
from tests.attacks.stories import begin, describe_run, find_checkpoints, kill, list_results
from tests.conftest import remount
from tests.processes import TRAINING, run_cold, wait_until

pytestmark = pytest.mark.slow
KILLS = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    done = TRAINING.run(*describe_run(make_store(folder).folder, folder / "run"), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(list_results(folder / "run")) > 6
    return folder


@pytest.fixture
def words(whole: Path, tmp_path: Path) -> tuple[str | Path, ...]:
    return describe_run(whole / "store", tmp_path / "run", workers=2)


def check_end(words: tuple[str | Path, ...], whole: Path) -> None:
    """The same command ends with the same bytes, and leaves nothing."""
    run = Path(words[3])
    done = TRAINING.run(*words, cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert list_results(run) == list_results(whole / "run")
    assert not list(run.rglob(".partial-*"))
    assert not list(run.rglob("*.checkpoints"))


def test_kills_with_a_checkpoint_on_the_disk(whole: Path, tmp_path: Path) -> None:
    generator, run, kills, ended = random.Random(0), tmp_path / "killed", 0, 0
    words = describe_run(whole / "store", run)
    while kills < KILLS or ended == 0:
        program = begin(*words, cwd=tmp_path)
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
        assert list_results(run) == list_results(whole / "run"), f"after {kills} kills"
        ended += 1
        if kills < KILLS:
            shutil.rmtree(run)


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


@pytest.mark.parametrize("shift", [-CENTURY // 4, CENTURY])
def test_a_moved_clock_and_moved_times_of_files(shift: int, whole: Path, tmp_path: Path) -> None:
    store = shutil.copytree(whole / "store", tmp_path / "store")
    words = describe_run(store, tmp_path / "run")
    program = begin(*words, cwd=tmp_path)
    assert wait_until(lambda: find_checkpoints(tmp_path / "run"), program)
    kill(program)
    for path in (*(tmp_path / "run").rglob("*"), *store.rglob("*")):
        found = path.stat().st_mtime + shift
        os.utime(path, (found, found))
    command = [sys.executable, "-c", MOVED, *map(str, words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list_results(tmp_path / "run") == list_results(whole / "run")


SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # of what the command writes that there is room for
PAGE = 4096


@pytest.mark.parametrize("share", SHARES)
def test_a_full_disk(share: float, disk: Path, whole: Path) -> None:
    expected = list_results(whole / "run")
    words = describe_run(whole / "store", disk / "run")
    pages = sum(-(-len(content) // PAGE) for content in expected.values())
    remount(disk, f"size={max(PAGE, int(share * pages * PAGE))}")
    done = TRAINING.run(*words, cwd=disk.parent)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "space left" in done.stderr
    assert not list(disk.rglob(f"{TEMPORARY}*"))
    remount(disk, "size=64m")
    check_end(words, whole)


def test_a_worker_stands_still(words: tuple[str | Path, ...], whole: Path, tmp_path: Path) -> None:
    program = begin(*words, cwd=tmp_path)
    assert wait_until(lambda: find_checkpoints(tmp_path / "run"), program)
    children = psutil.Process(program.pid).children(recursive=True)
    for child in children:
        child.suspend()
    time.sleep(1)
    for child in children:
        child.resume()
    assert program.wait(120) == 0, program.communicate()[1]
    check_end(words, whole)


def test_nobody_reads(words: tuple[str | Path, ...], whole: Path, tmp_path: Path) -> None:
    command = [str(TRAINING.program), *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdout = None
        errors = process.communicate(timeout=120)[1]
    assert b"Traceback" not in errors
    check_end(words, whole)


@pytest.mark.parametrize("name", ["TMPDIR", "HOME", "XDG_CACHE_HOME"])
def test_no_home(name: str, words: tuple[str | Path, ...], whole: Path, tmp_path: Path) -> None:
    done = TRAINING.run(*words, cwd=tmp_path, env={**os.environ, name: str(tmp_path / "none")})
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2)
    check_end(words, whole)


@pytest.mark.parametrize("megabytes", [300, 500, 800])
def test_little_memory(
    megabytes: int, words: tuple[str | Path, ...], whole: Path, tmp_path: Path
) -> None:
    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    assert run_cold(*words, cwd=tmp_path, preexec_fn=restrict).returncode != 0
    check_end(words, whole)
