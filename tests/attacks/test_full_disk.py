"""A disk that is full at any moment is said, and with room the same command ends with the same."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solution.system.files import TEMPORARY
from tests.attacks.making import make_data, make_store
from tests.attacks.stories import describe_run, list_results
from tests.processes import TRAINING
from tests.store.test_store import snapshot

SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # of what the command writes that there is room for
PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, whose size is set by `resize`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def resize(disk: Path, size: int) -> None:
    """Give it so many bytes in all."""
    options = f"remount,size={max(PAGE, size)}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True, capture_output=True)


def fill(
    disk: Path,
    arguments: tuple[str | Path, ...],
    results: Callable[[], dict[str, bytes]],
    expected: dict[str, bytes],
    share: float,
) -> None:
    pages = sum(-(-len(content) // PAGE) for content in expected.values())
    resize(disk, int(share * pages * PAGE))
    done = TRAINING.run(*arguments, cwd=disk.parent)
    assert done.returncode == 2, f"{share}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert not list(disk.rglob(f"{TEMPORARY}*"))
    resize(disk, 64 << 20)
    again = TRAINING.run(*arguments, cwd=disk.parent)
    assert again.returncode == 0, f"{share}: {again.stderr}"
    assert results() == expected


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_a_preparation(share: float, disk: Path, tmp_path: Path) -> None:
    data = make_data(tmp_path)
    words = ("prepare", data, "--workers", "1", "--out")
    assert TRAINING.run(*words, tmp_path / "whole", cwd=tmp_path).returncode == 0
    store = disk / "store"
    fill(disk, (*words, store), lambda: snapshot(store), snapshot(tmp_path / "whole"), share)


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_a_run(share: float, disk: Path, tmp_path: Path) -> None:
    store, run = make_store(tmp_path).folder, disk / "run"
    whole = TRAINING.run(*describe_run(store, tmp_path / "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    expected = list_results(tmp_path / "whole")
    fill(disk, describe_run(store, run), lambda: list_results(run), expected, share)
