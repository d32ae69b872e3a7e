"""What the record of a run covers, and what becomes of one that was changed."""

import dataclasses
from pathlib import Path

import pytest

from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_job
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


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "..", "", "a\0b", "x" * 300])
def test_an_experiment_whose_name_leads_out_of_the_run_is_refused(
    tmp_path: Path, name: str
) -> None:
    with open_run(tmp_path / "run", SETTINGS) as run:
        record = run.record()
    settings = {**record["settings"], "experiments": {name: {}}}
    write_sealed(record | {"settings": settings}, run.folder / "run.json")
    with pytest.raises(InputError, match=r"run\.json: of an experiment expected a name"):
        Run.existing(run.folder)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b"])
def test_a_job_whose_experiment_leads_out_of_its_folder_is_refused(
    tmp_path: Path, name: str
) -> None:
    write_sealed({**dataclasses.asdict(JOB), "experiment": name}, tmp_path / "job.json")
    with pytest.raises(InputError, match=r"job\.json: expected the record of a trained model"):
        read_job(tmp_path)
    write_sealed(dataclasses.asdict(JOB), tmp_path / "job.json")
    assert read_job(tmp_path) == JOB


JOB = JobRecord(
    experiment="mine", source="", collections=("tile:xla",), learned_from=("tile:xla",), fold=0,
    seed=0, versions={}, seconds=1.0, peak_megabytes=1.0, fitted_on=[], validated_on=[], curve=[],
    files={},
)  # fmt: skip
