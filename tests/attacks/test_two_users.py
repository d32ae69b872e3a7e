"""Two users of one machine: they share a store and the folder of temporary files, and nothing else.

The second one may read everything, for the interpreter lies where only root can, and write nothing
that is not its own.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from solution.store.store import Store
from tests.attacks.making import make_data, make_store
from tests.attacks.stories import describe_run, list_results
from tests.processes import FASTSLOW
from tests.store.test_store import snapshot

NOBODY = 65534
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)  # fmt: skip


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
    assert one == other
    assert len(one) > 6
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
    assert "Permission denied" in errors
    assert str(store) in errors
    assert "Traceback" not in errors
    assert snapshot(store) == before
    assert finish(begin((), users[()], *words))[0] == 0
