"""The temporary folder of a command, of which nothing is left, also after a kill."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from solution.system.scratch import PREFIX, ScratchFolder, find_base, scratch_folder, sweep

HELD = """
import sys, tempfile, time
from solution.system.scratch import scratch_folder
with scratch_folder():
    tempfile.mkstemp()
    print("held", flush=True)
    time.sleep(100)
"""


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


def test_where_no_folder_can_be_made_the_command_goes_on(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("FASTSLOW_TEMPORARY", None)
    called = [sys.executable, "-c", code]
    done = subprocess.run(called, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
    assert not done.stderr
    assert not list(tmp_path.iterdir())
