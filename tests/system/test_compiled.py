"""What is kept beside the code, the commit, temporary folders and leftovers of killed commands."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from solution.choosing.journal import Journal as ChoosingJournal
from solution.collecting.journal import Journal as CollectingJournal
from solution.runs.record import open_run
from solution.system import commit
from solution.system.files import remove_leftovers, write_sealed
from solution.system.numba_cache import PACKAGE, SOURCES, find_cache
from solution.system.scratch import PREFIX, ScratchFolder, find_base, scratch_folder, sweep
from solution.tuning.study_file import working_copy

HELD = """
import sys, tempfile, time
from solution.system.scratch import scratch_folder
with scratch_folder():
    tempfile.mkstemp()
    print("held", flush=True)
    time.sleep(100)
"""


def run_python(code: str, **changes: str | None) -> "subprocess.CompletedProcess[str]":
    """In a process with other variables; None: without this one."""
    changed = {**os.environ, **changes}
    environment = {name: value for name, value in changed.items() if value is not None}
    called = [sys.executable, "-c", code]
    return subprocess.run(called, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FASTSLOW_TEMPORARY", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def hold(base: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "TMPDIR": str(base)}
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_all_temporary_files_lie_in_it_and_go_with_it(base: Path) -> None:
    with scratch_folder():
        made = Path(tempfile.mkstemp()[1])
        assert made.parent.parent == base and os.environ["TMPDIR"] == str(made.parent)
        assert find_base() == base  # for locks between commands
    assert not list(base.iterdir())
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(base)


def test_of_a_killed_command_the_next_removes_it_and_of_a_living_one_not(base: Path) -> None:
    dead, living = hold(base), hold(base)
    try:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert len(list(base.glob(f"{PREFIX}*/*"))) == 2
        (base / f"{PREFIX}file").write_text("somebody's")
        (base / f"{PREFIX}link").symlink_to(living.args[0])  # type: ignore[index]
        sweep(base)
        assert len(list(base.glob(f"{PREFIX}*/*"))) == 1
        assert (base / f"{PREFIX}file").exists() and (base / f"{PREFIX}link").is_symlink()
    finally:
        living.kill()
        living.wait()


def test_an_object_has_its_folder_until_it_ends(base: Path) -> None:
    """Also where no command runs; a killed process's folder goes when the next one is made."""
    dead = hold(base)
    dead.kill()
    dead.wait()
    first, second = ScratchFolder(), ScratchFolder()
    assert sorted(base.iterdir()) == sorted([first.path, second.path])
    assert first.path.stat().st_mode & 0o777 == 0o700
    first.remove()
    assert list(base.iterdir()) == [second.path]
    del second
    assert not list(base.iterdir())


def test_without_a_folder_the_command_goes_on(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with scratch_folder():
        assert not list(base.iterdir())


def test_what_multiprocessing_keeps_there_is_removed_without_a_word(tmp_path: Path) -> None:
    """It removes its folder when the process exits, and prints a traceback if that is gone."""
    code = (
        "from multiprocessing.util import get_temp_dir\n"
        "from solution.system.scratch import scratch_folder\n"
        "with scratch_folder():\n"
        "    print(get_temp_dir())"
    )
    done = run_python(code, TMPDIR=str(tmp_path), FASTSLOW_TEMPORARY=None)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path) and not done.stderr
    assert not list(tmp_path.iterdir())


def test_another_source_has_another_cache(tmp_path: Path) -> None:
    """numba itself looks at the file of the function that is called alone."""
    copy = tmp_path / "solution"
    for folder in SOURCES:
        shutil.copytree(PACKAGE / folder, copy / folder)
    first = find_cache(copy)
    assert first.name == find_cache().name
    loop = copy / "placement" / "simulation" / "loop.py"
    text = loop.read_text()
    loop.write_text(f"{text}\n\nMORE = 1\n")
    assert find_cache(copy) != first
    loop.write_text(text)
    assert find_cache(copy) == first


def test_all_that_is_compiled_is_looked_at() -> None:
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    compiled = [path for path, text in texts.items() if "@njit" in text or "@compiled" in text]
    assert compiled
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in compiled}
    assert folders <= set(SOURCES)


@pytest.mark.parametrize("imported", ["solution, numba", "numba, solution"])
@pytest.mark.parametrize("given", [None, "mine"])
def test_what_is_compiled_is_kept_there(given: str | None, imported: str) -> None:
    code = f"import {imported}; print(numba.config.CACHE_DIR)"
    expected = given or str(find_cache())
    assert run_python(code, NUMBA_CACHE_DIR=given).stdout.strip() == expected


def test_a_terminal_is_told_once_that_something_is_compiled() -> None:
    code = (
        "from numba import njit\n"
        "from solution.system.numba_cache import announce_compiling\n"
        "announce_compiling()\n"
        "for _ in range(2): njit(lambda number: number + 1)(1)"
    )
    ours, terminal = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", code], stderr=terminal, check=False)
        said = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(terminal)
    assert done.returncode == 0 and said.count("Compiling") == 1
    assert not run_python(code).stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that holds the module, a ledger and a file."""
    here = tmp_path / "solution" / "system"
    here.mkdir(parents=True)
    shutil.copy(commit.__file__, here)
    (tmp_path / "submissions").mkdir()
    for name in (commit.LEDGER, "README.md"):
        (tmp_path / name).write_text("as committed\n", encoding="utf-8")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "all"]):
        call(tmp_path, "git", *arguments)
    return tmp_path


def call(folder: Path, *words: str) -> str:
    """What a program prints in the folder."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ask(checkout: Path) -> str:
    """What the module in the checkout says."""
    code = "import commit; print(commit.read_commit())"
    return call(checkout / "solution" / "system", sys.executable, "-c", code)


def test_a_checkout_is_dirty_where_more_than_the_ledger_differs(checkout: Path) -> None:
    """And without git there is no commit."""
    head = call(checkout, "git", "rev-parse", "HEAD")
    assert ask(checkout) == head
    (checkout / commit.LEDGER).write_text("a submission more\n", encoding="utf-8")
    assert ask(checkout) == head
    (checkout / "README.md").write_text("other words\n", encoding="utf-8")
    assert ask(checkout) == f"{head}-dirty"
    shutil.rmtree(checkout / ".git")
    assert ask(checkout) == "None"


# Of a search that is at work, of a run that is called as an experiment's folder is, and one's own.
OTHERS = (
    "a/.partial-study.db",
    "runs/test/.partial-0123456789abcdef",
    "mine/test/.partial-0123456789abcdef",
    "mydocs/.partial-notes.txt",
)


def tune(folder: Path) -> None:
    with working_copy(folder):
        pass


def run(folder: Path) -> None:
    with open_run(folder, {"experiments": {"one": {}}}):
        pass


def choose(folder: Path) -> None:
    ChoosingJournal.open(folder, {})


def collect(folder: Path) -> None:
    write_sealed({"identity": {}}, folder / "state.json")
    CollectingJournal(folder, {})


def list_all(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(".partial-*"))


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("half")


@pytest.mark.parametrize("work", [tune, run, choose, collect])
def test_the_leftovers_of_others_stay(work: Callable[[Path], None], tmp_path: Path) -> None:
    if work is run:  # it is begun in an empty folder only
        run(tmp_path)
    write(tmp_path, ".partial-own", *OTHERS)
    work(tmp_path)
    assert list_all(tmp_path) == sorted(OTHERS)


def test_those_in_folders_that_are_named_are_removed_too(tmp_path: Path) -> None:
    write(tmp_path, ".partial-own", "graphs/.partial-a", "graphs/tile/xla/train/.partial-b")
    write(tmp_path, *OTHERS)
    remove_leftovers(tmp_path, ["graphs/**"])
    assert list_all(tmp_path) == sorted(OTHERS)
