"""Names of anybody on the page: they are text, and move nothing that stands beside them."""

import os
import sys
from pathlib import Path

import pytest

from ensembles.recipe import find_recipe
from solution.runs.folder import Run
from solution.runs.origin import recall_origin, remember_origin
from solution.runs.record import open_run
from solution.system.errors import InputError
from submissions.page.build import write_page
from tests.made.run import RECIPE, make_run

NO_TEXT = os.fsdecode(b"r\xff")
LINUX = pytest.mark.skipif(sys.platform == "darwin", reason="macOS makes no such folder")


def write_recipe(folder: Path) -> str:
    recipe = folder / "mine.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    return str(recipe)


def test_a_name_turns_no_direction_of_the_text_beside_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run\u202e<b>")
    page = write_page(run, find_recipe(write_recipe(tmp_path))).read_text(encoding="utf-8")
    assert "\u202e" not in page
    assert "<h1>run\\u202e&lt;b&gt;</h1>" in page


@LINUX
def test_a_run_whose_name_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run").folder.rename(tmp_path / NO_TEXT)
    with pytest.raises(InputError, match="no text"):
        Run.existing(folder)
    with pytest.raises(InputError, match="no text"), open_run(folder, {}):
        pass


@LINUX
def test_a_run_below_a_folder_whose_name_is_no_text_has_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / NO_TEXT
    place.mkdir()
    monkeypatch.chdir(place)
    run = make_run(Path("run"))
    remember_origin(run, Path("data"), Path("store"))
    origin = recall_origin(run)
    assert origin is not None and origin.data.endswith("r\\udcff/data")
    assert write_page(run, find_recipe(write_recipe(tmp_path))).is_file()
