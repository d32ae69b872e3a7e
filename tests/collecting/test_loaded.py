"""Executables in a child that times them: one that kills it costs only itself."""

from collections.abc import Iterator

import pytest

from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, Workers
from solution.collecting.loaded import Loaded
from solution.programs.child import Child, Limits
from solution.programs.compiler import Flags
from solution.programs.program import Program
from tests.made.timed import FEW_MEGABYTES

Executables = tuple[Program, bytes, bytes]
AMPLE = Limits(240)


@pytest.fixture
def built(ragged: Program, heavy: Program, workers: Workers) -> Executables:
    """Return a product, and its executables that take little and much memory."""
    builder = Builder(workers.compiling, ragged)
    modest = builder.open().executable
    return ragged, modest, builder.build(Compile(heavy.plain, Flags()))[2].executable


@pytest.fixture
def child(workers: Workers) -> Iterator[Child]:
    with Child(AMPLE, workers.timing.core) as opened:
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


def test_a_reloaded_executable_that_kills_the_child_costs_only_itself(
    built: Executables, child: Child
) -> None:
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
    assert loaded.visit("forgotten") is None
    assert loaded.visit("kept") is not None
