"""What the record of a run covers, and what becomes of one that was changed."""

from pathlib import Path

import pytest

from solution.runs.record import open_run
from solution.system.errors import InputError
from solution.system.files import write_sealed
from tests.runs.test_runs import SETTINGS, names


def test_a_run_that_is_gone_on_with_by_other_libraries_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        record = run.record()
        versions = record["versions"] | {"numpy": "1.2.3"}
        write_sealed(record | {"versions": versions}, run.folder / "run.json")
    with open_run(tmp_path, SETTINGS):
        pass
    assert "numpy 1.2.3, now" in " ".join(capsys.readouterr().err.split())


def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS):
        pass
    record = tmp_path / "run.json"
    record.write_text(record.read_text().replace('"folds": 5', '"folds": 4'))
    with pytest.raises(InputError, match=r"run\.json.*damage"), open_run(tmp_path, SETTINGS):
        pass


def test_replacing_removes_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with open_run(tmp_path / "run", SETTINGS) as run:
        (run.folder / "link").symlink_to(precious)
    with open_run(tmp_path / "run", SETTINGS, replace=True) as run:
        assert names(run.folder) == {"run.json"}
    assert names(precious) == {"thesis.txt"}
