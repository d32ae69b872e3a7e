"""A compiler that dies, takes all memory or never ends costs a single request.

An executable that kills the child that times it costs only itself.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, Workers
from solution.collecting.loaded import Loaded
from solution.collecting.tiles import FORCE, LIBRARIES_OFF, SIZE
from solution.programs.child import Child, Limits
from solution.programs.compiler import Flags
from solution.programs.program import Program, read_programs
from solution.system.errors import InputError
from tests.made.timed import FEW_MEGABYTES


def test_an_abort_of_the_compiler_costs_one_candidate(workers: Workers, ragged: Program) -> None:
    builder = Builder(workers.compiling, ragged)
    malformed = Flags(LIBRARIES_OFF, ((FORCE, "true"), (SIZE, "4:4:4")))
    status, note, _ = builder.build(Compile(ragged.plain, malformed))
    assert status == "died"
    assert "Check failed" in note
    assert builder.build(Compile(ragged.plain, Flags()))[0] == "sound"


def test_a_tile_that_takes_all_memory_is_ended(ragged: Program, workers: Workers) -> None:
    huge = Flags(LIBRARIES_OFF, ((FORCE, "true"), (SIZE, "64:64:4*vectwidth")))
    with Child(Limits(240), workers.compiling.core) as child:
        builder = Builder(child, ragged)
        builder.open()
        for limits, expected in ((Limits(2), "than 2 seconds"), (Limits(240, 290), "than 290 MB")):
            child.limits = limits
            status, note, _ = builder.build(Compile(ragged.plain, huge))
            assert (status, expected in note) == ("died", True), note
            child.limits = Limits(240)
            assert builder.build(Compile(ragged.plain, Flags()))[0] == "sound"


def wait_forever(connection: Connection, errors: Path, core: int | None) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("limits", "seconds", "fact"),
    [(Limits(), 0.5, "more than 0.5 seconds"), (Limits(megabytes=5), 60, "more than 5 MB")],
)
def test_a_process_that_does_not_start_is_not_the_files_fault(
    limits: Limits, seconds: float, fact: str, ragged_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solution.programs.child.START_SECONDS", seconds)
    with Child(limits, work=wait_forever) as child:
        with pytest.raises(InputError, match=f"did not start: .*{fact}.*busy") as raised:
            list(read_programs(ragged_file, child))
        assert "ragged" not in str(raised.value)
        assert not child.is_alive


STARTS = """
import subprocess

subprocess.Popen(["sleep", {seconds!r}], start_new_session=True)
{end}
import jax.numpy as jnp
arguments = [jnp.ones((4, 4))]
def program(x):
    return x @ x
"""


def find_sleeping(seconds: str) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if process.info["cmdline"] == ["sleep", seconds]]


@pytest.fixture
def seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the argument by which the process that a test's program starts is found."""
    monkeypatch.chdir(tmp_path)
    chosen = f"600.{abs(hash(str(tmp_path)))}"
    yield chosen
    for process in find_sleeping(chosen):
        process.kill()


def test_processes_end_with_the_program_that_started_them(seconds: str, workers: Workers) -> None:
    Path("starts.py").write_text(STARTS.format(seconds=seconds, end=""))
    with Child(Limits(), workers.compiling.core) as child:
        assert len(list(read_programs(Path("starts.py"), child))) == 1
        assert find_sleeping(seconds)
    assert not find_sleeping(seconds)


def test_processes_end_if_the_whole_command_is_killed(seconds: str) -> None:
    Path("starts.py").write_text(STARTS.format(seconds=seconds, end="import time; time.sleep(100)"))
    process = subprocess.Popen([sys.executable, "-m", "solution", "rank", "starts.py"])
    deadline = time.monotonic() + 60
    while not find_sleeping(seconds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert find_sleeping(seconds)
    process.kill()
    process.wait()
    while find_sleeping(seconds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not find_sleeping(seconds)


Executables = tuple[Program, bytes, bytes]


@pytest.fixture
def built(ragged: Program, heavy: Program, workers: Workers) -> Executables:
    """Return a product, and its executables that take little and much memory."""
    builder = Builder(workers.compiling, ragged)
    modest = builder.open().executable
    return ragged, modest, builder.build(Compile(heavy.plain, Flags()))[2].executable


@pytest.fixture
def child(workers: Workers) -> Iterator[Child]:
    with Child(Limits(240), workers.timing.core) as opened:
        yield opened


def test_one_that_cannot_be_loaded_leaves_the_others(built: Executables, child: Child) -> None:
    program, modest, heavy = built
    child.limits = Limits(240, FEW_MEGABYTES)
    deaths: dict[str, str] = {}
    loaded = Loaded(child, program.arguments, deaths.__setitem__)
    executables = {"first": modest, "heavy": heavy, "nonsense": b"", "last": modest}
    assert [loaded.add(*item) for item in executables.items()] == [True, False, False, True]
    assert loaded.visit("heavy") is None
    for name in ("first", "last"):
        timings = loaded.visit(name)
        assert timings is not None and timings.wall.min() > 0
    assert loaded.names == ["first", "last"]
    assert list(deaths) == ["heavy", "nonsense"]
    assert deaths["heavy"] == f"it took more than {FEW_MEGABYTES} MB of memory"


def test_one_that_kills_when_reloaded_costs_only_itself(built: Executables, child: Child) -> None:
    program, modest, heavy = built
    deaths: dict[str, str] = {}
    loaded = Loaded(child, program.arguments, deaths.__setitem__)
    executables = {"first": modest, "heavy": heavy, "last": modest}
    assert all(loaded.add(*item) for item in executables.items())
    child.end()  # as if the system had ended it
    child.limits = Limits(240, FEW_MEGABYTES)
    assert loaded.visit("last") is not None
    assert list(deaths) == ["heavy"]
    assert loaded.names == ["first", "last"]


def test_executables_that_are_not_kept_are_removed(built: Executables, child: Child) -> None:
    program, modest, _ = built
    loaded = Loaded(child, program.arguments, {}.__setitem__)
    for name in ("kept", "forgotten"):
        loaded.add(name, modest)
    loaded.keep(["kept"])
    assert loaded.visit("forgotten") is None and loaded.visit("kept") is not None
