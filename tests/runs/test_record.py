"""What the record of a run covers, and what becomes of one that was changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solution.runs.record import open_run
from solution.system.errors import InputError
from solution.system.files import write_sealed
from tests.conftest import REPOSITORY
from tests.runs.test_runs import SETTINGS, names

IGNORED = shutil.ignore_patterns("sample", "__pycache__", "kernels")


@pytest.mark.parametrize(
    ("file", "decides"),
    [
        ("solution/analysis/data_pictures.py", False),
        ("solution/experiments/mine_001.py", False),
        ("solution/training/watch.py", False),
        ("submissions/writer.py", False),
        ("solution/features/padding.py", True),
        ("solution/models/nets/losses.py", True),
        ("solution/training/folds.py", True),
    ],
)
def test_the_fingerprint_covers_what_decides_predictions_and_no_more(
    file: str, decides: bool, tmp_path: Path
) -> None:
    """A remark in a picture, or a new experiment, leaves a run usable."""
    shutil.copytree(REPOSITORY / "solution", tmp_path / "solution", ignore=IGNORED)
    shutil.copytree(REPOSITORY / "submissions", tmp_path / "submissions", ignore=IGNORED)

    def fingerprint() -> str:
        code = "from solution.runs.record import fingerprint_code; print(fingerprint_code())"
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    before = fingerprint()
    with (tmp_path / file).open("a", encoding="utf-8") as source:
        source.write("# a remark\n")
    assert (fingerprint() != before) == decides


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
