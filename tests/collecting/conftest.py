"""Programs to collect, and whether there is a compiler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from solution.collecting.cpu import Workers
from tests.made.timed import DENSE, RAGGED, open_workers


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return _write(tmp_path / "dense.py", DENSE)


@pytest.fixture
def ragged(tmp_path: Path) -> Path:
    return _write(tmp_path / "ragged.py", RAGGED)


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two children with a compiler each, for all tests of a process."""
    with open_workers() as opened:
        yield opened


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
