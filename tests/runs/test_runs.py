"""Artefacts appear whole or not at all, and a run folder belongs to one run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from solution.runs.fingerprint import fingerprint_code
from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_job
from solution.runs.record import LIBRARIES, open_run
from solution.system.errors import InputError
from solution.system.files import replace_file, replace_folder, write_sealed

SETTINGS: dict[str, Any] = {"folds": 5, "scheme": "architecture", "seeds": (0, 1)}


class StoppedError(Exception):
    """Whatever ends a block early."""


def names(folder: Path) -> set[str]:
    """Everything below the folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def refuse(words: str, folder: Path, settings: dict[str, Any], *, replace: bool = False) -> str:
    """The message with which a run is refused."""
    with (
        pytest.raises(InputError, match=words) as caught,
        open_run(folder, settings, replace=replace),
    ):
        pass
    return str(caught.value)


@pytest.mark.parametrize("ending", [StoppedError, KeyboardInterrupt])
def test_a_failing_block_leaves_what_was_there(tmp_path: Path, ending: type[BaseException]) -> None:
    path = tmp_path / "folder" / "file.txt"
    path.parent.mkdir()
    path.write_text("old")
    with pytest.raises(ending), replace_file(path) as temporary:
        temporary.write_text("half")
        raise ending
    with pytest.raises(ending), replace_folder(path.parent) as temporary:
        (temporary / "half.txt").write_text("half")
        raise ending
    assert path.read_text() == "old"
    assert names(tmp_path) == {"folder", "folder/file.txt"}


def test_a_new_run_remembers_its_settings_and_versions(tmp_path: Path) -> None:
    with open_run(tmp_path / "runs" / "mine", SETTINGS) as run:
        record = json.loads((run.folder / "run.json").read_text())
    assert record["settings"] == {"folds": 5, "scheme": "architecture", "seeds": [0, 1]}
    assert record["code"] == fingerprint_code()
    assert set(record["versions"]) == {"python", *LIBRARIES}
    assert names(tmp_path / "runs" / "mine") == {"run.json"}


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / "emptied" / "deeper").mkdir(parents=True)  # as a mirror may be
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / ".partial-record").write_text("{")  # of a process that was killed
    for name in ("emptied", "begun"):
        with open_run(tmp_path / name, SETTINGS) as run:
            assert run == Run(tmp_path / name)
        assert (tmp_path / name / "run.json").is_file()
    assert names(tmp_path / "begun") == {"run.json"}


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        refuse("other files", path, SETTINGS, replace=replace)
    assert names(tmp_path) == {"thesis.txt"}


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"folds": 3}, "folds: 5, now 3"), ({"limit": True}, "limit: None, now True")],
)
def test_other_settings_are_named(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        (run.folder / "unit").write_text("done")
    assert "seeds" not in refuse(f"{named}.*--replace", tmp_path, SETTINGS | changed)
    assert names(tmp_path) == {"run.json", "unit"}


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', '{"lr": 0.1}'])
@pytest.mark.parametrize("replace", [False, True])
def test_a_foreign_record_is_never_touched(tmp_path: Path, text: str, replace: bool) -> None:
    """Another tool's run.json must not cost its user everything that lies beside it."""
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "thesis.txt").write_text("years of work")
    refuse(r"run\.json", tmp_path, SETTINGS, replace=replace)
    assert names(tmp_path) == {"run.json", "thesis.txt"}


def test_replacing_empties_the_folder_whatever_the_settings_were(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        (run.folder / "deep" / "unit").mkdir(parents=True)
        (run.folder / "submission.csv").write_text("old")
    with open_run(tmp_path, {"folds": 2}, replace=True) as run:
        assert names(tmp_path) == {"run.json"}
        assert json.loads((run.folder / "run.json").read_text())["settings"] == {"folds": 2}


@pytest.mark.parametrize("replace", [False, True])
def test_a_second_process_is_kept_out_and_touches_nothing(tmp_path: Path, replace: bool) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        (run.folder / ".partial-unit").mkdir()
        refuse("another process", tmp_path, SETTINGS, replace=replace)
        assert names(tmp_path) == {"run.json", ".partial-unit"}


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    settings = {"experiments": {"one": {}}}
    with open_run(tmp_path, settings) as run:
        jobs = run.job("one", ["tile:xla"], 0, 0).parent
        (jobs / ".partial-a" / "model").mkdir(parents=True)
        (jobs / ".partial-a" / "model" / ".partial-b").write_text("half")
        (jobs / "fold-0-seed-0" / "model").mkdir(parents=True)
        (jobs / "fold-1-seed-0").mkdir()  # empty: of no model
        (run.folder / ".partial-c").write_text("half")
    with open_run(tmp_path, settings) as run:
        kept = {"run.json", "one", "one/jobs", "one/jobs/tile-xla"}
        folders = {"fold-0-seed-0", "fold-0-seed-0/model", "fold-1-seed-0"}
        assert names(tmp_path) == {*kept, *(f"one/jobs/tile-xla/{name}" for name in folders)}
        assert run.jobs("one") == [run.job("one", ["tile:xla"], 0, 0)]


def test_an_existing_run_is_found_and_a_missing_one_refused_by_name(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=f"{folder}: there is no run here"):
            Run.existing(folder)
    with open_run(tmp_path, {"experiments": {"two": {}, "one": {}}}) as run:
        assert Run.existing(tmp_path) == run
        assert run.experiments() == ["two", "one"]
        assert run.sample_submission() is None


def test_of_an_experiment_that_was_changed_the_setting_is_named(tmp_path: Path) -> None:
    def settings(penalty: float, kind: str = "Net", more: str = "") -> dict[str, Any]:
        ranker = f"Ridge(max_rows=1000, net={kind}(sizes=(1, 2), penalty={penalty}), last=0{more})"
        return {"experiments": {"mine": {"collections": ["tile:xla"], "ranker": ranker}}}

    with open_run(tmp_path, {**settings(10.0), "folds": 5}):
        pass
    named = r"\(folds: 5, now 3; ranker of mine: penalty=10\.0, now penalty=1\.0\)"
    refuse(named, tmp_path, {**settings(1.0), "folds": 3})
    named = r"\(ranker of mine: net=Net, now net=Tree, more=1\)"
    refuse(named, tmp_path, {**settings(10.0, "Tree", ", more=1"), "folds": 5})


def test_of_two_equal_settings_the_changed_one_is_named_with_its_old_value(tmp_path: Path) -> None:
    def settings(width: int) -> dict[str, Any]:
        ranker = f"Two(first=Net(width=2), second=Net(width={width}))"
        return {"experiments": {"mine": {"collections": ["tile:xla"], "ranker": ranker}}}

    with open_run(tmp_path, settings(2)):
        pass
    refuse(r"\(ranker of mine: width=2, now width=3\)", tmp_path, settings(3))


def test_a_run_that_is_gone_on_with_by_other_libraries_or_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        record = run.record()
        versions = record["versions"] | {"numpy": "1.2.3"}
        write_sealed(record | {"versions": versions}, run.folder / "run.json")
    with open_run(tmp_path, SETTINGS):
        pass
    assert "numpy 1.2.3, now" in " ".join(capsys.readouterr().err.split())
    write_sealed(record | {"code": "0" * 16}, run.folder / "run.json")
    refuse("other code", tmp_path, SETTINGS)


def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS):
        pass
    record = tmp_path / "run.json"
    record.write_text(record.read_text().replace('"folds": 5', '"folds": 4'))
    refuse(r"run\.json.*damage", tmp_path, SETTINGS)


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
def test_an_experiment_that_leads_out_of_the_run_is_refused(tmp_path: Path, name: str) -> None:
    with open_run(tmp_path / "run", SETTINGS) as run:
        record = run.record()
    settings = {**record["settings"], "experiments": {name: {}}}
    write_sealed(record | {"settings": settings}, run.folder / "run.json")
    with pytest.raises(InputError, match="experiment: expected"):
        Run.existing(run.folder)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b"])
def test_a_job_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    write_sealed({**dataclasses.asdict(JOB), "experiment": name}, tmp_path / "job.json")
    with pytest.raises(InputError, match="trained model"):
        read_job(tmp_path)
    write_sealed(dataclasses.asdict(JOB), tmp_path / "job.json")
    assert read_job(tmp_path) == JOB


JOB = JobRecord(
    experiment="mine", source="", collections=("tile:xla",), learned_from=("tile:xla",), fold=0,
    seed=0, versions={}, seconds=1.0, peak_megabytes=1.0, fitted_on=[], validated_on=[], curve=[],
    files={},
)  # fmt: skip
