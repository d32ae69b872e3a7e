"""The page of a run that goes on."""

import shutil
from pathlib import Path

from ensembles.recipe import find_recipe
from submissions.page.build import write_page
from tests.made.run import RECIPE, make_run


def test_a_run_that_is_not_finished_is_called_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    words = "The run is not finished: nothing of trees_001 stands in these numbers yet."
    assert words not in write_page(run, find_recipe(str(recipe))).read_text(encoding="utf-8")
    shutil.rmtree(run.folder / "trees_001")
    assert words in write_page(run, find_recipe(str(recipe))).read_text(encoding="utf-8")
