"""What happens to a run while it lasts: kills, signals, crowds, no room; then it goes on."""

import os
import resource
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.attacks.making import make_store
from tests.attacks.stories import begin, describe_run, find_checkpoints, list_results, wait_until
from tests.processes import TRAINING, Program, run_cold

pytestmark = pytest.mark.slow


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


def wait_for_checkpoint(program: Program, run: Path) -> None:
    assert wait_until(lambda: bool(find_checkpoints(run)), program)


def test_a_worker_that_stands_still(
    words: tuple[str | Path, ...], whole: Path, tmp_path: Path
) -> None:
    program = begin(*words, cwd=tmp_path)
    wait_for_checkpoint(program, tmp_path / "run")
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
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
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
