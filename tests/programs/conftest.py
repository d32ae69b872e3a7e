"""Programs of other people that once were not read, and what is right for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from solution.collecting.cpu import Workers
from tests.made.timed import open_workers

CASES = Path(__file__).parent / "cases"


@pytest.fixture
def cases() -> Path:
    """A file or a folder for each kind; not to be changed."""
    return CASES


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two children with a compiler each, for all tests of a process."""
    with open_workers() as opened:
        yield opened
