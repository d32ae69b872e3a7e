"""What cannot be written is said before the work, and what the system refused by its name."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.cli import KEPT, STOPPED
from solution.system.files import remove, replace_file, replace_folder
from solution.system.parquet import writing
from tests.conftest import FastSlow, assert_refused
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.guarded import largest_file
from tests.made.hostile import AS_NOBODY
from tests.made.run import make_run
from tests.processes import FASTSLOW

FULL_DEVICE = Path("/dev/full")
# Says "ready" inside `main`, where the first slow import begins: before it, Python itself answers.
STARTED = """
import sys
from solution.cli import main

class SayReady:
    def find_spec(self, name, *_):
        if name == "solution.commands.assembly":
            print("ready", flush=True)

sys.argv = ["fastslow", *sys.argv[1:]]
sys.meta_path.insert(0, SayReady())
main()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run, a file and a folder that are in the way."""
    made = tmp_path_factory.mktemp("made")
    write_graph(make_tile_graph(0, name="k0"), made / "data")
    make_run(made / "done", collections=("tile:xla",))
    (made / "project").mkdir()
    for name in ("file", "a.hlo", "a.pb", "project/bundle.json", "project/mine.py"):
        (made / name).write_text("mine")
    for name in ("folder.parquet", "folder.html", "folder.png"):
        (made / name).mkdir()
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(("line", "said"), [
    ("optimize rnnlm-2 --out .", ".: is a folder, where a file is to be written"),
    ("features tile:xla --data data --out folder.parquet", "folder.parquet: is a folder"),
    ("report --run done --out folder.html", "folder.html: is a folder"),
    ("ensemble --search --run done --out folder.png", "folder.png: is a folder"),
    ("inspect data/npz/tile/xla/train/k0.npz --picture folder.png", "folder.png: is a folder"),
    ("inspect other", "other: there is no such file or folder. Give an npz file, a folder or"),
    ("inspect data --picture file", "file: a file is in its place"),
    ("explain net_001 a --run done --out file", "file: a file is in its place"),
    ("tune tile_lightgbm_001 --data data --out file", "file: a file is in its place"),
    ("pack done --out file/bundle --refit", "file: a file is in its place"),
    ("pack done --out file --refit", "file: expected a new name or a bundle"),
    ("pack done --out project", "project: expected a new name or a bundle"),
    ("pack done --out .", ".: expected the name of a new folder or of a bundle"),
    ("inspect a.hlo", "a.hlo: is a program, expected an npz file. `fastslow rank a.hlo`"),
    ("inspect a.pb", "a.pb: is a program, expected an npz file. `fastslow module a.pb`"),
])  # fmt: skip
def test_what_is_in_the_way_is_said_before_the_work(
    fastslow_here: FastSlow, folder: Path, line: str, said: str
) -> None:
    before = sorted(folder.rglob("*"))
    done = fastslow_here(*line.split())
    assert_refused(done, f"Error: {said}")
    assert not done.stdout
    assert sorted(folder.rglob("*")) == before


def _write_text(path: Path) -> None:
    path.write_bytes(b"x" * 100_000)


def _write_csv(path: Path) -> None:
    pl.DataFrame({"score": range(100_000)}).write_csv(path)


def _write_parquet(path: Path) -> None:
    with writing(path.with_name("wanted.csv")):
        pl.DataFrame({"score": np.random.default_rng(0).random(100_000)}).write_parquet(path)


@pytest.mark.parametrize("write", [_write_text, _write_csv, _write_parquet])
def test_a_file_that_grows_too_large_is_told(write: Callable[[Path], None], tmp_path: Path) -> None:
    """The system names none, or the one that stands for it until it is whole; polars no number."""
    full = pytest.raises(OSError, match=r"large: '.*wanted\.csv'")
    with full, largest_file(20 << 10), replace_file(tmp_path / "wanted.csv") as temporary:
        write(temporary)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not FULL_DEVICE.exists(), reason="there is no device that is always full")
def test_standard_output_is_named_where_it_is_full(folder: Path) -> None:
    words = [str(FASTSLOW.program), "check", "data"]
    with FULL_DEVICE.open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder)
    assert done.returncode == 2
    assert "standard output" in done.stderr


def test_a_closed_standard_output_is_no_error(folder: Path) -> None:
    words = f"{FASTSLOW.program} check data >&-"
    done = subprocess.run(["sh", "-c", words], stderr=subprocess.PIPE, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may do all")
def test_a_folder_that_may_not_be_removed_is_named(tmp_path: Path) -> None:
    """Removing it names no more than the last part of a name in it."""
    (tmp_path / "store" / "graphs").mkdir(parents=True)
    (tmp_path / "store" / "graphs" / "chain.safetensors").touch()
    code = """
import sys
from pathlib import Path
from solution.system.errors import InputError
from solution.system.files import remove
try:
    remove(Path(sys.argv[1]))
except InputError as error:
    print(error)
"""
    (tmp_path / "store" / "graphs").chmod(0o555)
    words = [*(AS_NOBODY if os.geteuid() == 0 else ()), sys.executable, "-c", code]
    done = subprocess.run([*words, str(tmp_path / "store")], capture_output=True, text=True)
    said = f"{tmp_path / 'store'}: may not be removed (chain.safetensors: Permission denied)"
    assert said in done.stdout, done.stderr
    (tmp_path / "store" / "graphs").chmod(0o755)
    remove(tmp_path / "store")
    with replace_folder(tmp_path / "store") as made:
        (made / "new").touch()


@pytest.mark.parametrize(
    ("command", "delay", "said"),
    [*(("check", delay, STOPPED) for delay in (0.0, 0.2)), ("demo", 0.2, KEPT)],
)
def test_stopped_while_libraries_are_imported_it_ends_with_a_sentence(
    command: str, delay: float, said: str, tmp_path: Path
) -> None:
    """Only a command that goes on says that it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, command], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    if process.returncode != 0:  # it had not ended before
        assert (process.returncode, error) == (130, f"{said}\n")


SCRIPT = """
import sys
from solution.cli import main

for words in sys.argv[1:]:
    sys.argv = ["fastslow", *words.split()]
    print(">", words, file=sys.stderr)
    try:
        main()
    except SystemExit as ended:
        print("code", ended.code, file=sys.stderr)
"""
COMMANDS = {
    "run data --experiment nothing_001 --run mine": "mine",
    "train nothing_001 --data data --run mine": "mine",
    "prepare data --out mine": "mine",
    "inspect data/npz/tile/xla/train/k0.npz --picture mine/k.png": "mine",
    "report --run done --recipe mean_rank_001": "done",
    "ensemble --run done": "done",
    "features tile:xla --data data --out mine/table.parquet": "mine",
    "tune tile_lightgbm_001 --data data --out mine": "mine",
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Root's folder with data and a run, which all may read; pytest's are its user's alone."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory(prefix="no-permission-") as name:
        made = Path(name)
        made.chmod(0o755)
        for number in range(3):
            write_graph(make_tile_graph(number, name=f"k{number}"), made / "data")
        make_run(made / "done", collections=("tile:xla",))
        yield made


def test_every_command_names_the_folder_that_was_given(open_folder: Path) -> None:
    command = [*AS_NOBODY, sys.executable, "-c", SCRIPT, *COMMANDS]
    environment = {**os.environ, "HOME": "/nonexistent", "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=open_folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    parts = dict(part.split("\n", 1) for part in done.stderr.split("> ")[1:])
    assert parts.keys() == COMMANDS.keys(), done.stderr
    for words, given in COMMANDS.items():
        assert f"Error: {given}: may not be written (Permission denied)" in parts[words], words
        assert "code 2" in parts[words]
        assert ".partial" not in parts[words]
        assert ("--out FILE.html" in parts[words]) == words.startswith("report")
    assert not done.stdout.strip()  # said before the work
    assert not (open_folder / "mine").exists()
