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
        ("graph", "from drawing graphs, also where several are one program at different sizes, "),
        ("architecture", "from drawing programs, each with all its sizes, again"),
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
