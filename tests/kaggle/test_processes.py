"""A program that a fork server runs is to a test what one is that was started cold."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from solution.system.files import take_lock
from tests.kaggle.place import Place
from tests.kaggle.world import LIST, Fault
from tests.processes import FASTSLOW, KAGGLE, Server, run_cold

SHOWN = ("competitions", "submissions", "predict-ai-model-runtime")
QUIET = subprocess.DEVNULL


@pytest.fixture
def environment(place: Place) -> dict[str, str]:
    """That of a call of the kaggle CLI."""
    return {**place.environment(), "PYTHONUTF8": "1"}


def wait_until_asked(place: Place) -> None:
    while not place.world.count(LIST):
        time.sleep(0.01)


def find_group(number: int) -> set[int]:
    """The processes of a group."""
    found = set()
    for process in psutil.pids():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            found |= {process} if os.getpgid(process) == number else set()
    return found


@pytest.mark.parametrize(
    "arguments", [["--help"], ["no-such-command"], ["verify", "there.csv", "--run", "nowhere"]]
)
def test_fastslow_prints_and_ends_the_same(arguments: list[str], tmp_path: Path) -> None:
    forked, cold = (run(*arguments, cwd=tmp_path) for run in (FASTSLOW.run, run_cold))
    assert vars(forked) == vars(cold)


@pytest.mark.parametrize("arguments", [["--version"], ["no-such-command"], SHOWN])
def test_the_kaggle_cli_prints_and_ends_the_same(
    arguments: list[str], place: Place, environment: dict[str, str]
) -> None:
    forked, cold = (
        subprocess.run([program, *arguments], env=environment, capture_output=True, text=True)
        for program in (KAGGLE.stand_in, KAGGLE.program)
    )
    assert (forked.returncode, forked.stderr) == (cold.returncode, cold.stderr)
    assert forked.stdout == cold.stdout
    assert place.world.count(LIST) == (2 if arguments is SHOWN else 0)


def test_a_killed_stand_in_takes_its_program_along(
    place: Place, environment: dict[str, str]
) -> None:
    """Until then the program holds the files that it was handed, and with them the lock."""
    path = place.folder / "lock"
    path.touch()
    place.world.faults = [Fault(LIST, "hangs")]
    with path.open() as mine, path.open() as other:
        assert take_lock(mine.fileno())
        process = subprocess.Popen(
            [KAGGLE.stand_in, *SHOWN],
            env=environment,
            stdout=QUIET,
            stderr=QUIET,
            pass_fds=[mine.fileno()],
        )
        mine.close()
        wait_until_asked(place)
        assert not take_lock(other.fileno())
        process.kill()
        process.wait()
        while not take_lock(other.fileno()):
            time.sleep(0.01)


def test_a_signal_ends_it(place: Place, environment: dict[str, str]) -> None:
    place.world.faults = [Fault(LIST, "hangs")]
    program = KAGGLE.start(*SHOWN, env=environment)
    wait_until_asked(place)
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == -signal.SIGTERM


def test_the_stand_in_ends_as_its_program_does(place: Place, environment: dict[str, str]) -> None:
    """And the program is in its process group."""
    place.world.faults = [Fault(LIST, "hangs")]
    command = [KAGGLE.stand_in, *SHOWN]
    stand_in = subprocess.Popen(command, env=environment, stdout=QUIET, process_group=0)
    wait_until_asked(place)
    (program,) = find_group(stand_in.pid) - {stand_in.pid}
    os.kill(program, signal.SIGKILL)
    assert stand_in.wait(60) == -signal.SIGKILL


def test_a_program_that_takes_too_long_is_killed(place: Place, environment: dict[str, str]) -> None:
    place.world.faults = [Fault(LIST, "hangs")]
    with pytest.raises(subprocess.TimeoutExpired):
        KAGGLE.run(*SHOWN, env=environment, timeout=0.5)


def test_what_python_reads_as_it_starts_is_not_silently_ignored(tmp_path: Path) -> None:
    program = FASTSLOW.start("--help", cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": "7"})
    printed, errors = program.communicate()
    assert (program.returncode, printed) == (1, "")
    assert "cold" in errors


def test_a_server_that_cannot_begin_is_no_program() -> None:
    server = Server("fastslow", ("no_such_library",))
    with pytest.raises(ConnectionError):
        server.run("--help")
    server.close()
