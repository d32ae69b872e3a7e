"""A page says what was drawn again for its intervals: what the folds of the run keep together."""

from pathlib import Path

import pytest

from ensembles.recipe import find_recipe
from solution.runs.folder import RECORD, read_record
from solution.system.files import write_sealed
from submissions.page.build import write_page
from tests.made.run import RECIPE, make_run


@pytest.mark.parametrize(
    ("scheme", "drawn"),
    [
        ("graph", "interval over graphs"),
        ("architecture", "interval over programs"),
    ],
)
def test_intervals_say_what_was_drawn(scheme: str, drawn: str, tmp_path: Path) -> None:
    run, path = make_run(tmp_path / "run", collections=("tile:xla",)), tmp_path / "mine.toml"
    path.write_text(RECIPE, encoding="utf-8")
    record = read_record(run.folder)
    write_sealed(
        {**record, "settings": {**record["settings"], "scheme": scheme}}, run.folder / RECORD
    )
    assert drawn in write_page(run, find_recipe(str(path)), None, None).read_text(encoding="utf-8")
