"""Where the measured data lies, and how the command line is called."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from solution.data.folders import SAMPLE, find_files
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store

if "PYTEST_XDIST_WORKER" in os.environ:  # a process a core: more threads would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).parent.parent
SHARED = Path(os.environ.get("FASTSLOW_SHARED", REPOSITORY.parent / "shared" / "data"))

FastSlow = Callable[..., subprocess.CompletedProcess[str]]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests that share what is slow to make in one process, where there are several."""
    used = getattr(item, "fixturenames", ())
    shared = [name for name in ("story", "day") if name in used]  # of tests/kaggle, tests/notebooks
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    item.add_marker(pytest.mark.xdist_group(shared[0] if shared else file))


@pytest.fixture
def sample() -> Path:
    """The bundled sample."""
    return SAMPLE


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The bundled sample, prepared; not to be changed."""
    return prepare_store(find_files(SAMPLE), tmp_path_factory.mktemp("store"), Preparation())


@pytest.fixture
def tpu() -> Path:
    """Real TpuGraphs files, which are not part of the repository."""
    folder = SHARED / "tpu"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    return folder


@pytest.fixture
def fastslow(tmp_path: Path) -> FastSlow:
    """Run the real command in an empty folder and return what it printed."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "fastslow"), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return call
