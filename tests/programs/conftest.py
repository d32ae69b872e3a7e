"""Programs of other people that once were not read, and what is right for each."""

from pathlib import Path

import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from tests.made.timed import workers  # noqa: F401

CASES = Path(__file__).parent / "cases"


@pytest.fixture
def cases() -> Path:
    """A file or a folder for each kind; not to be changed."""
    return CASES
