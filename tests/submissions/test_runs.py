"""The runs of a folder, and how what lies in one is made again."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ensembles.recipe import Recipe, find_recipe
from solution.runs.folder import Run
from solution.runs.origin import recall_origin
from solution.system.errors import InputError
from submissions.build import Built
from submissions.scores import list_runs
from tests.conftest import FastSlow
from tests.made.run import make_run


def test_of_a_damaged_table_of_scores_the_other_runs_are_shown(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        make_run(tmp_path / name)
    (tmp_path / "b" / "scores.csv").write_bytes(b"\xff\xfe\x00")
    text = "collection,ranker,score\ntile:xla,ensemble r,"
    (tmp_path / "a" / "scores.csv").write_text(text + "0.75\n")
    (tmp_path / "c" / "scores.csv").write_text(text + "abc\n")
    assert [line.score for line in list_runs(tmp_path)] == ["0.750", "damaged", "damaged"]


def test_a_run_that_held_out_nothing_has_no_score_and_is_not_damaged(tmp_path: Path) -> None:
    for name, text in (("a", "collection,ranker,score\n"), ("b", "")):
        make_run(tmp_path / name)
        (tmp_path / name / "scores.csv").write_text(text)
    assert [line.score for line in list_runs(tmp_path)] == ["", "damaged"]


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ("mean_rank_001", "`fastslow ensemble mean_rank_001 --run out` makes it again"),
        ("own", "its file, given to `fastslow ensemble`, makes it again"),
    ],
)
def test_how_the_last_submission_is_made_again(before: str, again: str) -> None:
    """A file of one's own may be called as a recipe of the package is."""
    own = find_recipe("mean_rank_001")
    if before == "own":
        own = own.model_copy(update={"members": {"one": 1.0}})
    nothing: Any = None
    written: Any = SimpleNamespace(describe=lambda: "Submission.")
    built = Built(Run(Path("out")), Recipe(name="r", members={"one": 1.0}), written, nothing, own)
    assert again in built.describe()
    changed = dataclasses.replace(built, before=Recipe(name="r", members={"two": 1.0}))
    assert changed.describe().endswith("was merged by r as it was then.")


def test_a_run_is_no_folder_of_runs(fastslow: FastSlow, tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    assert "a" in fastslow("runs", tmp_path).stdout
    done = fastslow("runs", tmp_path / "a")
    assert done.returncode == 2
    assert "of runs" in done.stderr


def test_a_damaged_origin_says_what_to_do(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    (run.folder / "origin.json").write_text("{")
    with pytest.raises(InputError, match=r"origin\.json.*Delete"):
        recall_origin(run)
