"""By which recipe a run is merged, and what its submission and its scores say."""

import codecs
import shutil
from pathlib import Path

import polars as pl
import pytest

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from ensembles.recipe import RECORD, Recipe, choose_before_training, find_recipe, recall
from solution.commands.running import _list_defaults
from solution.data.folders import SAMPLE
from solution.domain import predictions
from solution.domain.collection import NAMES
from solution.runs.folder import Run, recall_origin
from solution.system.errors import InputError
from solution.system.files import write_sealed
from submissions.build import build_submission
from submissions.ledger import Ledger
from submissions.scores import draw_history, list_runs, read_anchors
from submissions.writer import Expected, check_submission, write_submission
from tests.conftest import FastSlow, assert_refused
from tests.kaggle.desk import make_run
from tests.made.run import make_run as make_small_run
from tests.submissions.test_submission import (
    GRAPHS,
    SCORES,
    L,
    make_ranking,
    read_rows,
    write_sample,
)

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
    return run


@pytest.fixture
def run(merged: Run, tmp_path: Path) -> Run:
    """A copy of it."""
    return Run(shutil.copytree(merged.folder, tmp_path / "runs" / "run"))


def test_a_merge_that_is_refused_changes_nothing(run: Run) -> None:
    run.predictions("two", "test").unlink()
    with pytest.raises(InputError):
        build_submission(run, TURNED)
    assert recall(run.folder) == ONE
    # a run that will be deleted does not say how its successor is merged
    names = run.rankers()
    assert choose_before_training(run.folder, None, names) == ONE
    assert choose_before_training(run.folder, None, names, afresh=True) != ONE


BEST, QUICK = find_recipe(DEFAULT_RECIPE), find_recipe(SAMPLE_RECIPE)
SHARED = {*BEST.names()} & {*QUICK.names()}


@pytest.mark.parametrize(("names", "expected"), [
    ([*BEST.names(), BEST.fallback], DEFAULT_RECIPE),
    ([*QUICK.names(), QUICK.fallback], SAMPLE_RECIPE),
    ({*BEST.names(), *QUICK.names(), BEST.fallback}, DEFAULT_RECIPE),
    ([*SHARED, BEST.fallback], SAMPLE_RECIPE), (["mine", BEST.fallback], "equal_weights"),
])  # fmt: skip
def test_without_a_name_the_recipe_that_merges_most_is_chosen(
    names: list[str], expected: str, tmp_path: Path
) -> None:
    assert choose_before_training(tmp_path, None, sorted(names)).name == expected


def test_what_a_run_trains_if_nothing_is_named(run: Run) -> None:
    """The members of its last merge, if it has them all; else those of the recipe for the data."""
    best, quick = ({*recipe.names(), recipe.fallback} for recipe in (BEST, QUICK))
    record = run.folder / "run.json"

    def list_trained(
        data: Path = run.folder, *, limit: bool = False, afresh: bool = False
    ) -> set[str]:
        return {*_list_defaults(data, run.folder, limit=limit, afresh=afresh)}

    assert list_trained() == best  # what was merged last is no experiment of the package
    assert list_trained(SAMPLE) == list_trained(limit=True) == quick
    for has, expected in ((quick, quick), ({*SHARED}, best)):
        write_sealed({"settings": {"experiments": dict.fromkeys(has, {})}}, record)
        write_sealed({"recipe": QUICK.model_dump(mode="json")}, run.folder / RECORD)
        assert list_trained() == expected
        assert list_trained(afresh=True) == best
    # nor is it merged by a recipe that was chosen for a few of its members
    assert choose_before_training(run.folder, None, sorted(best)) == BEST


def test_a_sample_may_have_a_byte_order_mark_and_a_submission_not(tmp_path: Path) -> None:
    sample = write_sample(tmp_path, [(f"{L}:b", "0;1;2")])
    sample.write_bytes(codecs.BOM_UTF8 + sample.read_bytes())
    path = tmp_path / "submission.csv"
    write_submission(make_ranking(SCORES), GRAPHS, sample, path)
    assert read_rows(path)[1:] == [(f"{L}:b", "2;0;1")]
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    with pytest.raises(InputError, match="header"):
        check_submission(path, Expected({f"{L}:b": 3}, "the sample"))


def make_ledger(scored: int) -> Ledger:
    """So many submissions with all scores, one that waits and one made by hand."""
    ledger = Ledger()
    for number in range(scored):
        scores = {"public": f"{0.60 + 0.01 * number}", "private": f"{0.58 + 0.01 * number}"}
        when = f"2026-11-{20 - number:02d}T07:00:00Z"
        ledger.put(f"key{number}", when=when, state="scored", oof_mean="0.6", **scores)
    ledger.put("waiting", when="2026-11-30T07:00:00Z", state="pending", oof_mean="0.7")
    ledger.put("by-hand", when="2026-10-01T07:00:00Z", state="scored", public="0.5", private="0.5")
    return ledger


@pytest.mark.parametrize("scored", [0, 4])
def test_every_scored_submission_is_shown_in_order(scored: int, tmp_path: Path) -> None:
    figure = draw_history(make_ledger(scored), read_anchors())
    course, foretelling = figure.axes
    shown = {str(line.get_label()): line for line in course.lines}
    assert list(shown["private"].get_xdata()) == list(range(scored + 1))  # type: ignore[arg-type]
    dates = [label.get_text() for label in course.get_xticklabels()]
    assert dates == sorted(dates)
    assert len(dates) == scored + 1
    assert f"{scored} submissions" in foretelling.get_title()
    assert any("1st" in name for name in shown)
    for axes in figure.axes:
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    figure.savefig(tmp_path / "history.png", dpi=60)


def test_a_score_of_zero_is_shown() -> None:
    ledger = Ledger()
    scores = {"oof_mean": "0.0", "public": "0.0", "private": "0.00000"}
    ledger.put("key", when="2026-11-20T07:00:00Z", state="scored", **scores)
    course, foretelling = draw_history(ledger, []).axes
    assert [line.get_label() for line in course.lines] == ["public", "private", "out of fold"]
    assert "Kaggle: 1 " in foretelling.get_title()


def test_a_damaged_table_of_scores_does_not_hide_the_other_runs(tmp_path: Path) -> None:
    """A run that held out nothing has only a header, and is not damaged."""
    header = b"collection,ranker,score\n"
    line = header + b"tile:xla,ensemble r,"
    whole = header + b"".join(b"%s,ensemble r,0.5\n" % name.encode() for name in NAMES)
    texts = [line + b"0.75\n", whole, b"\xff\xfe\x00", line + b"abc\n", header, b""]
    first = make_small_run(tmp_path / "a").folder
    for name, text in zip("abcdef", texts, strict=True):
        if name != "a":
            shutil.copytree(first, tmp_path / name)
        (tmp_path / name / "scores.csv").write_bytes(text)
    scores = [line.score for line in list_runs(tmp_path)]
    assert scores == ["0.750 of 1 collection", "0.500", "damaged", "damaged", "", "damaged"]


def test_runs_of_notebooks_are_listed_by_the_path_that_run_takes(tmp_path: Path) -> None:
    for name in ("b", "a-notebook/run"):
        make_small_run(tmp_path / name)
    assert [line.name for line in list_runs(tmp_path)] == ["a-notebook/run", "b"]


def test_a_run_is_no_folder_of_runs(fastslow_here: FastSlow, tmp_path: Path) -> None:
    make_small_run(tmp_path / "a")
    assert "a" in fastslow_here("runs", tmp_path).stdout
    assert_refused(fastslow_here("runs", tmp_path / "a"), "of runs")


def test_a_damaged_origin_says_what_to_do(tmp_path: Path) -> None:
    run = make_small_run(tmp_path / "a")
    (run.folder / "origin.json").write_text("{")
    with pytest.raises(InputError, match=r"origin\.json.*Delete"):
        recall_origin(run)
