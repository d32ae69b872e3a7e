"""Programs that are compiled, and the children that do it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from solution.collecting.cpu import Workers
from solution.programs.program import Program, read_programs
from tests.made.timed import DENSE, HEAVY, RAGGED, open_workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two children with a compiler each, for all tests of a process."""
    pytest.importorskip("jax")  # the extra `collect`; make test installs it
    with open_workers() as opened:
        yield opened


@pytest.fixture(scope="session")
def dense(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _read(DENSE, "dense", workers, tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="session")
def ragged(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _read(RAGGED, "ragged", workers, tmp_path_factory.mktemp("ragged"))


@pytest.fixture(scope="session")
def heavy(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _read(HEAVY, "heavy", workers, tmp_path_factory.mktemp("heavy"))


def _read(text: str, name: str, workers: Workers, folder: Path) -> Program:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    (program,) = read_programs(path, workers.compiling)
    return program
