"""A folder that may not be written is named before the work, as it was given, by every command."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.made.graphs import make_tile_graph, write_graph
from tests.made.hostile import AS_NOBODY
from tests.made.run import make_run

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
def folder() -> Iterator[Path]:
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


def test_every_command_names_the_folder_that_was_given(folder: Path) -> None:
    command = [*AS_NOBODY, sys.executable, "-c", SCRIPT, *COMMANDS]
    environment = {**os.environ, "HOME": "/nonexistent", "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
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
    assert not (folder / "mine").exists()
