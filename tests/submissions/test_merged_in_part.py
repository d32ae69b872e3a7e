"""A merge that ends between two of its files: what lies in the run is of two recipes."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from ensembles.last_recipe import RECORD, is_whole, recall
from ensembles.recipe import Recipe
from solution.domain import predictions
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import write_sealed
from submissions.build import build_submission
from submissions.scores import list_runs
from tests.conftest import FastSlow
from tests.kaggle.place import make_run

ONE = Recipe(name="of_one", members={"one": 1.0})
TURNED = Recipe(name="turned", members={"two": 1.0})


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Merged by one recipe."""
    run = make_run(tmp_path_factory.mktemp("merged") / "run")
    write_sealed({"settings": {"experiments": {"one": {}, "two": {}}}}, run.folder / "run.json")
    for part in predictions.PARTS:
        ranked = predictions.read(run.predictions("one", part))
        predictions.write(ranked.with_columns(-pl.col("score")), run.predictions("two", part))
    build_submission(run, ONE)
    assert is_whole(run.folder)
    return run


@pytest.fixture
def run(merged: Run, tmp_path: Path) -> Run:
    """A copy of it."""
    return Run(shutil.copytree(merged.folder, tmp_path / "runs" / "run"))


def merge_in_part(run: Run) -> None:
    """By the other recipe, only as far as submission.csv."""
    scores = run.scores.read_bytes()
    run.scores.unlink()
    run.scores.mkdir()  # nothing can be written there
    with pytest.raises(InputError, match=r"scores\.csv"):
        build_submission(run, TURNED)
    run.scores.rmdir()
    run.scores.write_bytes(scores)


def test_what_is_of_two_recipes_is_told_and_mended(run: Run, fastslow: FastSlow) -> None:
    merge_in_part(run)
    assert recall(run.folder) == TURNED  # what was asked for last
    assert not is_whole(run.folder)
    (line,) = list_runs(run.folder.parent)
    assert (line.recipe, line.score) == ("turned, to be merged again", "")
    for words in (("verify", run.submission), ("report",)):
        done = fastslow(*words, "--run", run.folder)
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stderr.split())
        assert "by turned" in said
    done = fastslow("ensemble", "--run", run.folder)
    assert done.returncode == 0, done.stderr
    assert is_whole(run.folder)
    (line,) = list_runs(run.folder.parent)
    assert line.recipe == "turned"
    assert line.score
    assert "are not both" not in fastslow("verify", run.submission, "--run", run.folder).stdout


def test_a_file_that_was_changed_is_not_what_was_merged(run: Run) -> None:
    run.submission.write_text(run.submission.read_text() + "\n")
    assert not is_whole(run.folder)


def test_a_record_without_checksums_is_taken_at_its_word(run: Run) -> None:
    run.scores.write_text("of an earlier version")
    write_sealed({"recipe": ONE.model_dump(mode="json")}, run.folder / RECORD)
    assert is_whole(run.folder)


def test_a_merge_that_is_refused_changes_nothing(run: Run) -> None:
    run.predictions("two", "test").unlink()
    with pytest.raises(InputError):
        build_submission(run, TURNED)
    assert recall(run.folder) == ONE
    assert is_whole(run.folder)
