"""What happens to a store while and after it is made: kills, crowds, full disks, other data."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.processes import FASTSLOW, find_growing
from tests.store.test_store import SAMPLE_ROWS, snapshot

pytestmark = pytest.mark.slow
NUM_GRAPHS = 30
PREPARE = ("prepare", "data", "--out")
NOTHING = ("--experiment", "nothing_001", "--workers", "1")


def write_data(data: Path) -> None:
    for seed in range(NUM_GRAPHS // 2):
        split = "test" if seed % 5 == 0 else "train"
        graph = make_layout_graph(seed, 200, name=f"program_{seed}", labelled=seed % 5 != 0)
        write_graph(graph, data, split)
        write_graph(make_tile_graph(seed, 200, name=f"kernel_{seed}"), data)
    (data / "sample_submission.csv").write_text(SAMPLE_ROWS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and the store of an undisturbed preparation."""
    folder = tmp_path_factory.mktemp("whole")
    write_data(folder / "data")
    done = FASTSLOW.run(*PREPARE, "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A copy."""
    shutil.copytree(whole, tmp_path / "place")
    return tmp_path / "place"


def call(*words: str | Path, cwd: Path, code: int = 0) -> str:
    """What the command says, in one line."""
    done = FASTSLOW.run(*words, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_the_folder_is_removed_under_it(whole: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    words = ("prepare", whole / "data", "--out", store, "--workers", "1")
    program = FASTSLOW.start(*words, cwd=tmp_path)
    while program.poll() is None and len(find_growing(store, "[!.]*.safetensors")) < 5:
        time.sleep(0.0005)
    shutil.rmtree(store, ignore_errors=True)
    code, errors = program.wait(60), program.communicate()[1]
    assert code in (0, 2), errors
    assert "Traceback" not in errors
    shutil.rmtree(store, ignore_errors=True)
    call(*words, cwd=tmp_path)
    assert snapshot(store) == snapshot(whole / "store")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of its own with some options, once."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True)


@pytest.mark.parametrize("what", ["check", "prepare", "run", "unfinished", "new"])
def test_a_mount_that_is_read_only(
    what: str, disk: Callable[[str], Path], whole: Path, tmp_path: Path
) -> None:
    folder = disk("size=8m")
    shutil.copytree(whole / "store", folder / "store")
    if what == "unfinished":
        (folder / "store" / "graphs.parquet").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    data, store = whole / "data", folder / "store"
    words: dict[str, tuple[str | Path, ...]] = {
        "check": ("check", store),
        "prepare": ("prepare", data, "--out", store),
        "run": ("run", store, *NOTHING, "--run", tmp_path / "run"),
        "unfinished": ("prepare", data, "--out", store),
        "new": ("prepare", data, "--out", folder / "new"),
    }
    is_refused = what in ("unfinished", "new")
    said = call(*words[what], cwd=tmp_path, code=2 if is_refused else 0)
    assert not is_refused or "Read-only file system" in said
