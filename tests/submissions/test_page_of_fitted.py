"""A page of a recipe whose weights were found on the very graphs that it is scored on."""

from pathlib import Path

from ensembles.recipe import find_recipe
from solution.system.files import checksum
from submissions.page.build import write_page
from tests.made.run import RECIPE, make_run


def test_a_recipe_that_was_fitted_on_these_graphs_gains_nothing_here(tmp_path: Path) -> None:
    run, path = make_run(tmp_path / "run"), tmp_path / "mine.toml"
    texts = []
    for fitted in ("", f'fitted_on = "{checksum(run.labels)}"\nnested = 0.5\n'):
        path.write_text(fitted + RECIPE, encoding="utf-8")
        texts.append(write_page(run, find_recipe(str(path)), None, None).read_text())
    flattered = "fitted on these very graphs, which flatters it; on others the search reaches 0.5"
    assert [flattered in text for text in texts] == [False, True]
    assert ["best single" in text for text in texts] == [True, False]
