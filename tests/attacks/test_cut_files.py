"""A mapped file that is cut while it is read ends the command with a message, not with a signal."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.store.graph_file import MAPPED_BYTES
from solution.store.preparing import prepare_store
from solution.system.errors import InputError
from solution.system.processes import open_pool
from tests.conftest import REPOSITORY
from tests.made.graphs import make_layout_graph, make_wide_graph, write_graph
from tests.processes import run_cold

READER = """
import sys
from pathlib import Path
import numpy as np
from solution.system.mapping import name_cut_files

name_cut_files()
path = Path(sys.argv[1])
array, whole = np.memmap(path, np.uint8, "r"), np.memmap(sys.argv[2], np.uint8, "r")
print(array.sum(), flush=True)
path.write_bytes(b"x" * 5000)
print(array.sum() if len(sys.argv) == 3 else array[[0, 90_000]])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the signal is answered on Linux")
@pytest.mark.parametrize("how", [(), ("places",)])
def test_the_file_is_named(how: tuple[str, ...], tmp_path: Path) -> None:
    cut, whole = tmp_path / "some name.bin", tmp_path / "whole.bin"
    for path in (cut, whole):
        path.write_bytes(bytes(100_000))
    command = [sys.executable, "-c", READER, cut, whole, *how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stdout) == (2, "0\n")
    assert (
        done.stderr == f"Error: {cut}: was cut while it was read. Make it again, then start anew.\n"
    )


def begin_nothing() -> None:
    """What a worker of a pool is begun with."""


def read_cut(path: Path) -> int:
    array = np.memmap(path, np.uint8, "r")
    os.truncate(path, 5000)
    return int(array.sum())


@pytest.mark.slow
def test_a_worker_of_which_it_happened_has_said_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(bytes(100_000))
    with (
        pytest.raises(InputError, match="met a file that was cut: see above"),
        open_pool(1, begin_nothing) as pool,
    ):
        pool.submit(read_cut, path).result()
    assert f"{path}: was cut while it was read" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_whose_store_is_cut_names_the_file(workers: str, tmp_path: Path) -> None:
    configs = MAPPED_BYTES // 60 + 100
    write_graph(make_wide_graph(configs), tmp_path / "data")
    for seed in range(5):
        write_graph(make_layout_graph(seed, name=f"small_{seed}"), tmp_path / "data")
    store = prepare_store(find_files(tmp_path / "data"), tmp_path / "store", Preparation())
    (wide,) = [path for path in store.paths() if path.stem == "wide"]
    experiment = REPOSITORY / "tests" / "made" / "experiments" / "cut_while_read.py"
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[members]\ncut_while_read = 1\n")
    words = ("run", store.folder, "--experiment", experiment, "--recipe", recipe)
    done = run_cold(
        *words, "--scheme", "graph", "--folds", "2", "--workers", workers, "--run",
        tmp_path / "run", cwd=tmp_path, env={**os.environ, "CUT": str(wide)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"{wide}: " in done.stderr
    # Of two workers the other one may come first, and find a file that has another size.
    assert workers == "2" or f"{wide}: was cut while it was read" in done.stderr
    assert "Traceback" not in done.stderr
    check = run_cold("check", store.folder, cwd=tmp_path)
    assert check.returncode == 2
    assert str(wide) in " ".join(check.stderr.split())
