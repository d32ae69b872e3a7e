"""After a power cut the same command goes on and ends with the same bytes.

The folder lies on a file system of its own in an image. What that has written to its device at some
moment is what a cut would leave: the image is copied, and the command goes on from the copy. What
was not synced is not there, for the system writes it only after seconds. Meanwhile a neighbour
syncs a file of its own many times a second, with which the journal takes the names of all files,
but not their contents: a name that is not synced after its contents stands for an empty file.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.attacks.making import make_data, make_store
from tests.attacks.stories import begin, describe_run, kill, list_results
from tests.processes import TRAINING
from tests.store.test_store import snapshot

CUTS = 10
MEGABYTES = 48
# The file system may put a new name before the contents, and keep changes for a long time.
OPTIONS = "loop,noauto_da_alloc"
BETWEEN_SYNCS = 0.02  # seconds, of the neighbour
Arguments = Callable[[Path], tuple[str | Path, ...]]


def call(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command}: {done.stderr}")


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """The file system of the image, as after a start of the machine."""
    folder.mkdir()
    call("mount", "-o", OPTIONS, image, folder)
    try:
        yield folder
    finally:
        for _ in range(50):  # a killed process may not be gone yet
            if subprocess.run(["umount", folder], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An empty file system."""
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    try:
        call("mkfs.ext4", "-q", path)
        with mounted(path, tmp_path / "probe"):
            pass
    except OSError as error:
        pytest.skip(f"no file system can be made and mounted here: {error}")
    return path


def cut_power(image: Path, folder: Path, arguments: Arguments, seconds: float) -> Path:
    """Begin the command and take what is on the device after some time; the copy of the image."""
    copy = folder / "copy"
    with mounted(image, folder / "before") as disk:
        program = begin(*arguments(disk), cwd=folder)
        sync_as_a_neighbour(disk / "neighbour", seconds)
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGSTOP)  # the copy is of one moment
        shutil.copyfile(image, copy)
        if program.poll() is None:
            kill(program)
    return copy


def sync_as_a_neighbour(path: Path, seconds: float) -> None:
    """For so long."""
    until = time.monotonic() + seconds
    with path.open("wb", buffering=0) as file:
        while time.monotonic() < until:
            file.write(b"x")
            os.fsync(file)
            time.sleep(BETWEEN_SYNCS)


def attack(
    image: Path, folder: Path, arguments: Arguments, results: Callable[[Path], dict[str, bytes]]
) -> None:
    generator = random.Random(0)
    for name in ("first", "whole"):  # the first one waits for the libraries
        begin_at = time.monotonic()
        whole = TRAINING.run(*arguments(folder / name), cwd=folder)
        assert whole.returncode == 0, whole.stderr
    longest, expected = time.monotonic() - begin_at, results(folder / "whole")
    shortened = 0
    for number in range(CUTS):
        place = folder / str(number)
        place.mkdir()
        fresh = place / "fresh"
        shutil.copyfile(image, fresh)
        copy = cut_power(fresh, place, arguments, generator.uniform(0, longest))
        with ExitStack() as stack:
            disk = stack.enter_context(mounted(copy, place / "after"))
            left = results(disk)
            shortened += left.items() != expected.items()
            done = TRAINING.run(*arguments(disk), cwd=place)
            assert done.returncode == 0, f"cut {number}: {done.stderr}"
            assert results(disk) == expected, f"cut {number}"
        shutil.rmtree(place)
    assert shortened >= CUTS // 3, "the cuts came too late"


@pytest.mark.slow
def test_a_preparation_survives_power_cuts(image: Path, tmp_path: Path) -> None:
    data = make_data(tmp_path)

    def arguments(disk: Path) -> tuple[str | Path, ...]:
        return ("prepare", data, "--out", disk / "store", "--workers", "1")

    def results(disk: Path) -> dict[str, bytes]:
        return snapshot(disk / "store") if (disk / "store").exists() else {}

    attack(image, tmp_path, arguments, results)


@pytest.mark.slow
def test_a_run_survives_power_cuts(image: Path, tmp_path: Path) -> None:
    store = make_store(tmp_path).folder
    attack(
        image,
        tmp_path,
        lambda disk: describe_run(store, disk / "run"),
        lambda disk: list_results(disk / "run") if (disk / "run").exists() else {},
    )
