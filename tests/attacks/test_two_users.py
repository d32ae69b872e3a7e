"""Two users of one machine: they share a store and the folder of temporary files, and nothing else.

The second one may read everything, for the interpreter lies where only root can, and write nothing
that is not its own.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from solution.store.store import Store
from tests.attacks.making import make_data, make_store
from tests.attacks.stories import begin as begin_power_cuts
from tests.attacks.stories import describe_run, kill, list_results
from tests.made.hostile import AS_NOBODY, NOBODY
from tests.processes import FASTSLOW, TRAINING
from tests.store.test_store import snapshot


def begin(user: tuple[str, ...], folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    """The command in a folder of the user's own, with no home."""
    command = [*user, str(FASTSLOW.program), *map(str, words)]
    environment = {**os.environ, "HOME": "/nonexistent"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all may read; those of pytest are its user's own."""
    with tempfile.TemporaryDirectory(prefix="two-users-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def users(place: Path) -> dict[tuple[str, ...], Path]:
    """By user, a folder that only they may write into."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can be two users")
    try:
        subprocess.run([*AS_NOBODY, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no command can be run as another user: {error}")
    folders = {(): place / "one", AS_NOBODY: place / "other"}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    os.chown(folders[AS_NOBODY], NOBODY, NOBODY)
    return folders


@pytest.mark.slow
def test_both_run_on_one_store_at_once(users: dict[tuple[str, ...], Path], place: Path) -> None:
    store = make_store(place)
    before = snapshot(store.folder)
    words = describe_run(store.folder, Path("run"))
    running = [begin(user, folder, *words, "--workers", "2") for user, folder in users.items()]
    for process in running:
        code, errors = finish(process)
        assert code == 0, errors
    one, other = (list_results(folder / "run") for folder in users.values())
    assert one == other and len(one) > 6
    assert snapshot(store.folder) == before
    assert {path.stat().st_uid for path in (users[AS_NOBODY] / "run").rglob("*")} == {NOBODY}


@pytest.mark.slow
def test_nobody_else_mends_a_store(users: dict[tuple[str, ...], Path], place: Path) -> None:
    """What is sound is read; what would have to be written is said, and stays as it is."""
    data, store = make_data(place), make_store(place).folder
    words = ("prepare", data, "--out", store, "--workers", "1")
    folder = users[AS_NOBODY]
    assert finish(begin(AS_NOBODY, folder, *words))[0] == 0
    Store.open(store).paths()[0].unlink()
    before = snapshot(store)
    code, errors = finish(begin(AS_NOBODY, folder, *words))
    assert code == 2
    assert "Permission denied" in errors and str(store) in errors
    assert "Traceback" not in errors
    assert snapshot(store) == before
    assert finish(begin((), users[()], *words))[0] == 0


CUTS = 10
MEGABYTES = 48
# The file system may put a new name before the contents, and keep changes for a long time.
OPTIONS = "loop,noauto_da_alloc"
BETWEEN_SYNCS = 0.02  # seconds, of the neighbour
Arguments = Callable[[Path], tuple[str | Path, ...]]
Listing = Callable[[Path], dict[str, bytes]]


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """The file system of the image, as after a start of the machine."""
    folder.mkdir()
    subprocess.run(["mount", "-o", OPTIONS, image, folder], check=True, capture_output=True)
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
        subprocess.run(["mkfs.ext4", "-q", path], check=True, capture_output=True)
        with mounted(path, tmp_path / "probe"):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be made and mounted here: {error}")
    return path


def cut_power(image: Path, folder: Path, arguments: Arguments, seconds: float) -> Path:
    """Begin the command and take what is on the device after some time; the copy of the image."""
    copy = folder / "copy"
    with mounted(image, folder / "before") as disk:
        program = begin_power_cuts(*arguments(disk), cwd=folder)
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


def attack(image: Path, folder: Path, arguments: Arguments, listing: Listing, made: str) -> None:
    """`made` is the folder that the command makes; `listing` lists what is in it."""
    generator = random.Random(0)
    for name in ("first", "whole"):  # the first one waits for the libraries
        begin_at = time.monotonic()
        whole = TRAINING.run(*arguments(folder / name), cwd=folder)
        assert whole.returncode == 0, whole.stderr
    longest, expected = time.monotonic() - begin_at, listing(folder / "whole" / made)
    shortened = 0
    for number in range(CUTS):
        place = folder / str(number)
        place.mkdir()
        fresh = place / "fresh"
        shutil.copyfile(image, fresh)
        copy = cut_power(fresh, place, arguments, generator.uniform(0, longest))
        with ExitStack() as stack:
            disk = stack.enter_context(mounted(copy, place / "after"))
            shortened += not (disk / made).exists() or listing(disk / made) != expected
            done = TRAINING.run(*arguments(disk), cwd=place)
            assert done.returncode == 0, f"cut {number}: {done.stderr}"
            assert listing(disk / made) == expected, f"cut {number}"
        shutil.rmtree(place)
    assert shortened >= CUTS // 3, "the cuts came too late"


@pytest.mark.slow
def test_a_preparation_survives_power_cuts(image: Path, tmp_path: Path) -> None:
    data = make_data(tmp_path)

    def arguments(disk: Path) -> tuple[str | Path, ...]:
        return ("prepare", data, "--out", disk / "store", "--workers", "1")

    attack(image, tmp_path, arguments, snapshot, "store")


@pytest.mark.slow
def test_a_run_survives_power_cuts(image: Path, tmp_path: Path) -> None:
    store = make_store(tmp_path).folder
    attack(image, tmp_path, lambda disk: describe_run(store, disk / "run"), list_results, "run")
