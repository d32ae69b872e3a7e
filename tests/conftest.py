"""Where the measured data lies, and how the command line is called."""

import gc
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solution.cli import main
from solution.data.folders import SAMPLE, find_files
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from tests.made.guarded import Guard, open_guard
from tests.processes import FASTSLOW, TRAINING, run_cold

# Where the TPU's compiler is installed, jax would load it to look for a TPU; it then ignores SIGHUP
# in this process, and in all commands that the tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

REPOSITORY = Path(__file__).parent.parent
SHARED = Path(os.environ.get("FASTSLOW_SHARED", REPOSITORY.parent / "shared" / "data"))

# Commands that may import torch, which a fork of the larger server has already.
WITH_NETS = (
    "demo", "run", "train", "tune", "explain", "pack", "rank", "choose", "onnx", "optimize",
)  # fmt: skip

# Groups of tests that take minutes. They are begun first: one that is begun last is waited for
# while the other processes have nothing left to do. Ray waits much and what numba compiles never
# does; of test_away.py the last, a search for a TPU, needs what is compiled meanwhile.
LONGEST = ("cluster", "compiled", "story-0", "story-1", "day", "training",
           "notebooks/test_kills.py", "test_readme.py")  # fmt: skip
# Folders whose tests one process runs: what numba compiles, what needs nodes of Ray, and what
# trains in workers, whose server each process would begin anew.
FOLDERS = {"placement": "compiled", "propagation": "compiled", "cluster": "cluster",
           "training": "training", "sessions": "training"}  # fmt: skip

FastSlow = Callable[..., subprocess.CompletedProcess[str]]


def pytest_sessionstart() -> None:
    """What is imported and collected stays to the end: nothing of it is looked for as garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests that share what is slow to make in one process, where there are several."""
    item.add_marker(pytest.mark.xdist_group(find_group(item)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; the others stay in their order."""
    places = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(find_group(item), len(LONGEST)))


def find_group(item: pytest.Item) -> str:
    """Those that share a fixture which is slow to make, or else the test's file.

    Stories, of tests/kaggle, are in two groups: where there are two processes, both tell some. What
    numba compiles lasts a minute in a fresh clone: one process does it, before others want it.
    """
    used = getattr(item, "fixturenames", ())
    if "story" in used:
        return f"story-{zlib.crc32(item.name.encode()) % 2}"
    if "day" in used:  # of tests/notebooks
        return "day"
    file = item.path.relative_to(Path(__file__).parent)
    if "run" in used and file.parent.name == "serving":
        return "bundle"
    return FOLDERS.get(file.parent.name, file.as_posix())


@pytest.fixture
def sample() -> Path:
    """The bundled sample."""
    return SAMPLE


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The bundled sample, prepared; not to be changed."""
    return prepare_store(find_files(SAMPLE), tmp_path_factory.mktemp("store"), Preparation())


@pytest.fixture(scope="session")
def guard() -> Iterator[Guard]:
    """A process with little memory and time, for input that may want much."""
    with open_guard() as found:
        yield found


@pytest.fixture
def tpu() -> Path:
    """Real TpuGraphs files, which are not part of the repository."""
    folder = SHARED / "tpu"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(disk: Path, options: str) -> None:
    """Give the file system other options, such as size=8m or ro."""
    command = ["mount", "-o", f"remount,{options}", str(disk)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def fastslow(tmp_path: Path) -> FastSlow:
    """Run the real command in an empty folder and return what it printed."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        server = TRAINING if arguments[0] in WITH_NETS else FASTSLOW
        return server.run(*arguments, cwd=tmp_path)

    return call


@pytest.fixture
def cold_fastslow(tmp_path: Path) -> FastSlow:
    """The same, started as users start it: for a test of each command, and of all else in them."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run_cold(*arguments, cwd=tmp_path)

    return call


@pytest.fixture
def fastslow_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[FastSlow]:
    """The same in the process of the tests: for what is refused or done in a moment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        words = ["fastslow", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), *capsys.readouterr())

    yield call
    signal.signal(signal.SIGTERM, before)


def assert_done(done: subprocess.CompletedProcess[str]) -> str:
    """Of a command that did what it was asked for; returns what it printed."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_said(done: subprocess.CompletedProcess[str]) -> str:
    """As assert_done; returns what the command printed on one line."""
    return " ".join(assert_done(done).split())


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> str:
    """Of a command that says these words of a mistake; returns all that it says, on one line."""
    said = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert said and "Traceback" not in done.stdout + said
    assert not [text for text in words if text not in said], said
    return said
