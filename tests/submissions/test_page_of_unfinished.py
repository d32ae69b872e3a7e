"""What people should know before they believe the numbers of a run: its page and tables say it."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from ensembles.recipe import choose_recipe, find_recipe
from ensembles.tables import show_comparison
from solution.data.folders import SAMPLE
from solution.runs.folder import RECORD, Run, read_run_record, recall_origin, remember_origin
from solution.runs.record import open_run
from solution.system.errors import InputError
from solution.system.files import checksum, write_sealed
from submissions.page.build import write_page
from submissions.scores import list_runs
from tests.made.run import RECIPE, make_run

QUICK = "This is a quick look, by `--limit`: few graphs, one seed, short trainings."
ON_SAMPLE = "its scores must never be quoted as TpuGraphs results"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one collection; not to be changed."""
    return make_run(tmp_path_factory.mktemp("made") / "run", collections=("tile:xla",)).folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    """A copy of it."""
    return Run(shutil.copytree(made, tmp_path / "run"))


def write_recipe(folder: Path, text: str = RECIPE) -> str:
    recipe = folder / "mine.toml"
    recipe.write_text(text, encoding="utf-8")
    return str(recipe)


def read_page(run: Run, recipe: str | None = None) -> str:
    page = write_page(run, choose_recipe(run, recipe)).read_text(encoding="utf-8")
    return page.replace("<code>", "`").replace("</code>", "`")


def test_a_run_that_is_not_finished_is_called_so(run: Run, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    words = "The run is not finished: these numbers do not include trees_001 yet."
    whole = read_page(run, recipe)
    assert words not in whole
    assert all(fact in whole for fact in ("4 models", "3 experiments", "6 labelled"))
    assert words not in show_comparison(run, recipe, "net_001")[0]
    (run.folder / "trees_001" / "out_of_fold" / "predictions.parquet").unlink()
    (run.folder / "trees_001" / "test" / "predictions.parquet").unlink()
    part = read_page(run, recipe)
    assert words in part
    assert all(fact in part for fact in ("3 models", "2 experiments"))  # without trees_001's
    assert show_comparison(run, recipe, "net_001")[0].endswith(words)
    shutil.rmtree(run.folder / "trees_001")
    assert words in read_page(run, recipe)


def test_a_quick_look_is_called_so(made: Path, tmp_path: Path) -> None:
    told = {}
    for name in ("quick", "whole"):
        run = Run(shutil.copytree(made, tmp_path / name))
        record = read_run_record(run.folder)
        write_sealed({**record, "quick": name == "quick"}, run.folder / RECORD)
        compared = show_comparison(run, "net_001", "nothing_001")[0]
        told[name] = (QUICK in read_page(run, write_recipe(tmp_path)), QUICK in compared)
    assert told == {"quick": (True, True), "whole": (False, False)}
    assert [", a quick look" in line.recipe for line in list_runs(tmp_path)] == [True, False]


@pytest.mark.parametrize(
    ("data", "is_told"), [(SAMPLE, True), (SAMPLE / "npz" / "tile", True), (SAMPLE.parent, False)]
)
def test_scores_on_a_part_of_the_sample_are_no_results(
    data: Path, is_told: bool, run: Run, tmp_path: Path
) -> None:
    remember_origin(run, data, tmp_path / "store")
    assert (ON_SAMPLE in read_page(run, write_recipe(tmp_path))) == is_told


def test_who_makes_a_damaged_model_again_is_said(run: Run, tmp_path: Path) -> None:
    (run.jobs("trees_001")[0] / "job.json").write_text("{")
    with pytest.raises(InputError, match="`fastslow run`"):
        read_page(run, write_recipe(tmp_path))


NO_TEXT = os.fsdecode(b"r\xff")
LINUX = pytest.mark.skipif(sys.platform == "darwin", reason="macOS makes no such folder")


def test_a_name_turns_no_direction_of_the_text_beside_it(made: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(made, tmp_path / "run\u202e<b>"))
    page = write_page(run, find_recipe(write_recipe(tmp_path))).read_text(encoding="utf-8")
    assert "\u202e" not in page
    assert "<h1>run\\u202e&lt" in page


@LINUX
def test_a_run_whose_name_is_no_text_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    folder = run.folder.rename(tmp_path / NO_TEXT)
    with pytest.raises(InputError, match="not valid in utf-8"):
        Run.existing(folder)
    with pytest.raises(InputError, match="not valid in utf-8"), open_run(folder, {}):
        pass


@LINUX
def test_a_run_below_a_folder_whose_name_is_no_text_has_a_page(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / NO_TEXT
    folder.mkdir()
    monkeypatch.chdir(folder)
    run = Run(shutil.copytree(made, Path("run")))
    remember_origin(run, Path("data"), Path("store"))
    origin = recall_origin(run)
    assert origin is not None and origin.data.endswith("r\\udcff/data")
    assert write_page(run, find_recipe(write_recipe(tmp_path))).is_file()


def test_a_recipe_fitted_on_these_graphs_gains_nothing_here(run: Run, tmp_path: Path) -> None:
    marks = ("", f'fitted_on = "{checksum(run.labels)}"\nnested = 0.5\n')
    texts = [read_page(run, write_recipe(tmp_path, mark + RECIPE)) for mark in marks]
    flattered = "fitted on these very graphs, which flatters it; on others the search reaches 0.5"
    assert [flattered in text for text in texts] == [False, True]
    assert ["best single" in text for text in texts] == [True, False]


@pytest.mark.parametrize(("scheme", "groups"), [("graph", "over graphs"), ("family", "families")])
def test_intervals_name_their_groups(scheme: str, groups: str, run: Run, tmp_path: Path) -> None:
    record = read_run_record(run.folder)
    settings = {**record["settings"], "scheme": scheme}
    write_sealed({**record, "settings": settings}, run.folder / RECORD)
    assert groups in read_page(run, write_recipe(tmp_path))
