"""Programs to collect, as files and as read, and the children that compile them."""

from pathlib import Path

import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from tests.made.timed import DENSE, RAGGED, dense, heavy, ragged, workers  # noqa: F401


@pytest.fixture
def dense_file(tmp_path: Path) -> Path:
    return _write(tmp_path / "dense.py", DENSE)


@pytest.fixture
def ragged_file(tmp_path: Path) -> Path:
    return _write(tmp_path / "ragged.py", RAGGED)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
