"""Graphs that are there twice under different names."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import FastSlow
from tests.made.graphs import make_tile_graph, write_graph


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_check_and_run_say_which_graphs_are_copies_of_others(
    copies: int, fastslow: FastSlow, tmp_path: Path
) -> None:
    for seed in range(2):
        write_graph(make_tile_graph(seed, name=f"kernel{seed}"), tmp_path / "data")
    valid = tmp_path / "data/npz/tile/xla/valid"
    valid.mkdir()
    for number in range(copies):
        shutil.copyfile(valid.with_name("train") / "kernel1.npz", valid / f"copy{number}.npz")
    run = ("run", "data", "--experiment", "nothing_001", "--workers", "1")
    for command in (("check", "data"), ("prepare", "data"), run, ("check", "stores/data")):
        result = fastslow(*command)
        assert result.returncode == 0, result.stderr
        if command[0] == "prepare":
            continue
        said = {0: "", 1: "1 graph is a copy", 2: "2 graphs are copies"}[copies]
        assert said in result.stderr
        named = "such as tile:xla train kernel1 and tile:xla valid copy0."
        assert (named in result.stderr) == bool(copies)
        assert ("under another name" in result.stderr) == bool(copies)
