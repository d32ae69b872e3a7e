"""What a newcomer types in the first minutes, and what a run remembers of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from tests.conftest import REPOSITORY, FastSlow, assert_done, assert_refused
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.processes import FASTSLOW

RIDGE = (
    "--experiment", "linear_ridge_001", "--folds", "2", "--scheme", "graph", "--run", "out",
)  # fmt: skip


def make_data(folder: Path, *, labelled: bool = True) -> Path:
    """Six tile kernels and two to rank."""
    for number in range(6):
        graph = make_tile_graph(number, name=f"k{number}", labelled=labelled)
        write_graph(graph, folder, "train" if labelled else "test")
    for number in range(6, 8):
        graph = make_tile_graph(number, name=f"k{number}", labelled=False)
        write_graph(graph, folder, "test")
    return folder


def test_the_demo_ends_with_a_sentence_and_a_report(fastslow: FastSlow, tmp_path: Path) -> None:
    done = fastslow("demo")
    assert_done(done)
    assert re.search(r"takes \d+\.\d% longer than the best of all", done.stdout)
    assert re.search(r"names the faster one in \d\d% of the pairs", done.stdout)
    assert "2 folds" in done.stdout
    page = (tmp_path / "runs" / "demo" / "report.html").read_text(encoding="utf-8")
    assert "no Kaggle" in page
    assert "never be" in page
    # Off a terminal: a line a model; with what is left, where of most something is known.
    lines = [line for line in done.stderr.splitlines() if " of 26 " in line]
    assert len(lines) >= 26
    assert re.match(r"\d\d:\d\d:\d\d  1 of 26  .* in .* s", lines[0])
    assert any(re.search(r" in .* s, about .* left", line) for line in lines)
    assert "inner score 0." in done.stderr


def test_what_was_trained_is_merged_and_remembered(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data")
    too_few = ("--experiment", "nothing_001", "--recipe", "z_score_001")
    assert_refused(fastslow_here("run", data, *RIDGE, *too_few), "merges layout_gnn_001")
    assert not (tmp_path / "out").exists()

    said = assert_done(fastslow("run", data, *RIDGE))
    for words in ("equal weights", "linear_ridge_001", "ensemble equal_weights"):
        assert words in said

    checked = fastslow_here("verify", "out/submission.csv", "--run", "out").stdout
    assert all(fact in checked for fact in ("2 rows", "sound", "894 rows", "not for"))

    def merge(*recipe: str) -> str:
        return assert_done(fastslow_here("ensemble", *recipe, "--run", "out"))

    assert "ensemble equal_weights" in merge()  # the recipe of last time
    (tmp_path / "mine.toml").write_text("[members]\nlinear_ridge_001 = 1.0\n", encoding="utf-8")
    assert "ensemble mine" in merge("mine.toml")
    assert "ensemble equal_weights" in merge("equal_weights")
    assert "ensemble mine" in merge("mine.toml")
    assert "ensemble mine" in merge()
    assert fastslow_here("report", "--run", "out").stdout.strip().endswith("report.html")

    # The run knows its store, which is not called as it is.
    explained = fastslow("explain", "linear_ridge_001", "k3", "--run", "out")
    assert explained.stdout.startswith("Configuration "), explained.stderr
    pictures = tmp_path / "explanations" / "linear_ridge_001" / "tile" / "xla" / "k3"
    assert (pictures / "contributions.png").is_file()

    listed = fastslow_here("runs", ".").stdout
    assert re.search(r"out +\d{4}-\d\d-\d\d +\d+ +mine", listed)


def test_a_recipe_says_what_is_trained(fastslow: FastSlow, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    recipe = 'fallback = "nothing_001"\n[members]\nlinear_ridge_001 = 1\nlinear_lasso_001 = 1\n'
    (tmp_path / "mine.toml").write_text(recipe, encoding="utf-8")
    assert_done(fastslow("run", data, "--recipe", "mine.toml", "--run", "out", "--folds", "2"))
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {
        "nothing_001", "linear_ridge_001", "linear_lasso_001", "mine"
    }  # fmt: skip


@pytest.mark.parametrize(("options", "words", "labelled"), [
    ((), ["nothing can", "fastslow rank"], False),
    (("--collection", "layout:nlp:random"), ["of layout", "tile:xla"], True),
    (("--recipe", "mine.toml"), ["labelled graphs", "tile:xla"], True),
])  # fmt: skip
def test_what_the_data_does_not_have_is_refused_before_a_run_is_begun(
    options: tuple[str, ...], words: list[str], labelled: bool, fastslow_here: FastSlow,
    tmp_path: Path,
) -> None:  # fmt: skip
    data = make_data(tmp_path / "data", labelled=labelled)
    (tmp_path / "mine.toml").write_text("[members]\nlayout_lightgbm_001 = 1\n", encoding="utf-8")
    assert_refused(fastslow_here("run", data, "--run", "out", *options), *words)
    assert not (tmp_path / "out").exists()


def test_one_collection_is_enough(fastslow: FastSlow, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    write_graph(make_layout_graph(0, name="asked", labelled=False), data, "test")
    options = ("--experiment", "linear_ridge_001", "--folds", "2", "--collection", "tile:xla")
    done = fastslow("run", data, *options, "--experiment", "layout_lightgbm_001")
    assert "runs/data-tile-xla/submission.csv (2 rows, checked)" in assert_done(done)
    assert all(fact in done.stderr for fact in ("layout_lightgbm_001", "layout:xla:default"))
    assert "no graphs here" not in done.stderr  # of collections that nobody asked for


@pytest.mark.parametrize("name", ["out[1]", "o*?"])
def test_a_run_whose_name_is_a_pattern_is_read_again(
    name: str, fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data")
    (tmp_path / "out1").mkdir()  # what the patterns mean
    assert_done(fastslow("run", data, *RIDGE, "--run", name))
    said = assert_done(fastslow_here("ensemble", "equal_weights", "--run", name))
    assert f"{name}/submission.csv" in said


@pytest.mark.parametrize(("arguments", "meant"), [
    (("run", "--experiment", "laoyut_gnn_001"), "mean layout_gnn_001"),
    (("run", "--recipe", "z_scroe_001"), "mean z_score_001"),
    (("run", "--collection", "tile:xal"), "mean tile"), (("check", "README.md"), "expected a"),
])  # fmt: skip
def test_what_is_misspelt_is_guessed(
    arguments: tuple[str, ...], meant: str, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("words", encoding="utf-8")
    assert_refused(fastslow_here(*arguments), meant)


def test_a_graph_is_found_by_its_name(fastslow_here: FastSlow, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    write_graph(make_layout_graph(3, name="k3"), data)
    prepare_store(find_files(data), tmp_path / "store", Preparation())
    other = "has no graph of layout:nlp:random, it has graphs of layout:xla:random, tile:xla"
    for folder in ("data", "store"):
        said = assert_done(fastslow_here("inspect", folder, "--graph", "k2"))
        assert "tile:xla:k2" in said and "Picture: k2.png" in said
        words = ("inspect", folder, "--graph", "layout:xla:random:k3")
        narrow = {**os.environ, "COLUMNS": "60"}
        shown = FASTSLOW.run(*words, cwd=tmp_path, env=narrow).stdout
        assert "layout:xla:random:k3" in shown
        assert "…" not in shown
        for words, said in (
            (("--graph", "k3"), "'k3' may be layout:xla:random:k3 or tile:xla:k3"),
            (("--graph", "k22"), "has no graph 'k22'. Did you mean k2"),
            (("--graph", "k2", "--collection", "layout:nlp:random"), other),
        ):
            assert_refused(fastslow_here("inspect", folder, *words), said)
    said = "store: is a folder of 9 graphs. Give one with --graph, such as k0, k1, k2."
    assert_refused(fastslow_here("inspect", "store"), said)


def test_help_has_groups_and_examples(cold_fastslow: FastSlow, fastslow: FastSlow) -> None:
    shown = cold_fastslow("-h").stdout
    for group in ("Look", "Train", "Judge", "Submit"):
        assert f"─ {group} ─" in shown
    assert "--experiment my_model.py" in fastslow("run", "-h").stdout
    assert re.fullmatch(r"fast-or-slow \S+\n", fastslow("--version").stdout)
    command = [sys.executable, "-m", "solution", "--version"]
    assert subprocess.run(command, capture_output=True, check=True, cwd=REPOSITORY).stdout


def test_make_knows_its_variables_and_helps() -> None:
    slip = subprocess.run(
        ["make", "-n", "run", "DAT=x"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert slip.returncode != 0
    assert "DAT" in slip.stderr
    done = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "RECIPE=name" in done.stdout
    assert "pip install" not in done.stdout
