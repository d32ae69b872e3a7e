"""What people should know before they believe the numbers of a run: its page and tables say it."""

import shutil
from pathlib import Path

import pytest

from ensembles.last_recipe import choose_recipe
from ensembles.tables import show_comparison
from solution.data.folders import SAMPLE
from solution.runs.folder import Run
from solution.runs.origin import remember_origin
from solution.system.errors import InputError
from submissions.page.build import write_page
from submissions.scores import list_runs
from tests.conftest import FastSlow
from tests.made.run import RECIPE, make_run

QUICK = "This is a quick look, by `--limit`: few graphs, one seed, short trainings."
ON_SAMPLE = "its scores must never be quoted as TpuGraphs results"


def read_page(run: Run, recipe: Path | None = None) -> str:
    chosen = choose_recipe(run, None if recipe is None else str(recipe))
    page = write_page(run, chosen).read_text(encoding="utf-8")
    return page.replace("<code>", "`").replace("</code>", "`")


def test_a_run_that_is_not_finished_is_called_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    words = "The run is not finished: nothing of trees_001 stands in these numbers yet."
    whole = read_page(run, recipe)
    assert words not in whole
    assert all(fact in whole for fact in ("20 models", "3 experiments", "30 labelled"))
    assert words not in show_comparison(run, str(recipe), "net_001")[0]
    (run.folder / "trees_001" / "out_of_fold" / "predictions.parquet").unlink()
    (run.folder / "trees_001" / "test" / "predictions.parquet").unlink()
    part = read_page(run, recipe)
    assert words in part
    assert all(
        fact in part for fact in ("15 models", "2 experiments")
    )  # those of trees_001 lie there, and are not merged
    assert show_comparison(run, str(recipe), "net_001")[0].endswith(words)
    shutil.rmtree(run.folder / "trees_001")
    assert words in read_page(run, recipe)


def test_a_quick_look_is_called_so(fastslow: FastSlow, tmp_path: Path) -> None:
    told = {}
    for name, how in (("quick", ["--limit"]), ("whole", [])):
        words = ["--experiment", "linear_ridge_001", "--collection", "tile:xla", "--run"]
        done = fastslow("run", SAMPLE, *words, tmp_path / name, *how)
        assert done.returncode == 0, done.stderr
        run = Run(tmp_path / name)
        compared = show_comparison(run, "linear_ridge_001", "nothing_001")[0]
        told[name] = (QUICK in read_page(run), QUICK in compared)
    assert told == {"quick": (True, True), "whole": (False, False)}
    assert [", a quick look" in line.recipe for line in list_runs(tmp_path)] == [True, False]


@pytest.mark.parametrize(
    ("data", "is_told"),
    [
        (SAMPLE, True),
        (SAMPLE / "npz", True),
        (SAMPLE / "npz" / "tile", True),
        (SAMPLE.parent, False),
    ],
)
def test_scores_on_a_part_of_the_sample_are_no_results(
    data: Path, is_told: bool, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    remember_origin(run, data, tmp_path / "store")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    assert (ON_SAMPLE in read_page(run, recipe)) == is_told


def test_who_makes_a_damaged_model_again_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    (run.jobs("trees_001")[0] / "job.json").write_text("{")
    with pytest.raises(InputError, match="`fastslow run`"):
        read_page(run, recipe)
