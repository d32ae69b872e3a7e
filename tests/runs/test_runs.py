"""Artefacts appear whole or not at all, and a run folder belongs to one run."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from solution.runs.fingerprint import fingerprint_code
from solution.runs.folder import Run
from solution.runs.record import LIBRARIES, open_run
from solution.system.errors import InputError
from solution.system.files import replace_file, replace_folder, write_json, write_sealed

SETTINGS: dict[str, Any] = {"folds": 5, "scheme": "architecture", "seeds": (0, 1)}


class StoppedError(Exception):
    """Whatever ends a block early."""


def names(folder: Path) -> set[str]:
    """Everything below the folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_file_appears_when_the_block_is_done(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == path.parent
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(tmp_path) == {"deep", "deep/file.txt"}
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == {"file.txt"}


@pytest.mark.parametrize("ending", [StoppedError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_the_old_file(
    tmp_path: Path, ending: type[BaseException]
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(ending), replace_file(path) as temporary:
        temporary.write_text("half")
        raise ending
    assert path.read_text() == "old"
    assert names(tmp_path) == {"file.txt"}


def test_a_folder_appears_when_the_block_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    with replace_folder(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file.txt").write_text("new")
        assert not folder.exists()
    assert names(tmp_path / "deep") == {"folder", "folder/inner", "folder/inner/file.txt"}
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("ending", [StoppedError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_the_old_folder(
    tmp_path: Path, ending: type[BaseException]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    with pytest.raises(ending), replace_folder(folder) as temporary:
        (temporary / "half.txt").write_text("half")
        raise ending
    assert names(tmp_path) == {"folder", "folder/old.txt"}


def test_a_folder_with_something_in_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    with replace_folder(folder) as temporary:
        (temporary / "new.txt").write_text("new")
    assert names(tmp_path) == {"folder", "folder/new.txt"}


@pytest.mark.parametrize("write", [replace_file, replace_folder])
def test_a_block_that_fails_the_first_time_leaves_nothing(
    tmp_path: Path, write: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    with pytest.raises(StoppedError), write(tmp_path / "name"):
        raise StoppedError
    assert names(tmp_path) == set()


def test_json_is_written_readably(tmp_path: Path) -> None:
    write_json({"a": [1, 2]}, tmp_path / "file.json")
    text = (tmp_path / "file.json").read_text()
    assert json.loads(text) == {"a": [1, 2]}
    assert text.endswith("}\n")


def test_a_new_run_remembers_its_settings_and_versions(tmp_path: Path) -> None:
    with open_run(tmp_path / "runs" / "mine", SETTINGS) as run:
        record = json.loads((run.folder / "run.json").read_text())
    assert record["settings"] == {"folds": 5, "scheme": "architecture", "seeds": [0, 1]}
    assert record["code"] == fingerprint_code()
    assert set(record["versions"]) == {"python", *LIBRARIES}
    assert names(tmp_path / "runs" / "mine") == {"run.json"}


def test_the_same_settings_resume_and_keep_what_is_there(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        (run.folder / "unit").write_text("done")
        record = (run.folder / "run.json").read_bytes()
    with open_run(tmp_path, SETTINGS) as run:
        assert (run.folder / "unit").read_text() == "done"
        assert (run.folder / "run.json").read_bytes() == record


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / "emptied" / "deeper").mkdir(parents=True)  # as a mirror may be
    with open_run(tmp_path, SETTINGS) as run:
        assert run == Run(tmp_path)


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, replace: bool
) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with (
        pytest.raises(InputError, match="files that no run made"),
        open_run(tmp_path, SETTINGS, replace=replace),
    ):
        pass
    assert names(tmp_path) == {"thesis.txt"}


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(InputError, match="run"), open_run(tmp_path / "run", {}, replace=replace):
        pass
    assert (tmp_path / "run").read_text() == "precious"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"folds": 3}, "folds: 5, now 3"),
        ({"scheme": "graph"}, "scheme: architecture, now graph"),
        ({"limit": True}, "limit: None, now True"),
    ],
)
def test_other_settings_are_refused_and_named(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        (run.folder / "unit").write_text("done")
    with (
        pytest.raises(InputError, match=f"{named}.*--replace") as caught,
        open_run(tmp_path, SETTINGS | changed),
    ):
        pass
    assert "seeds" not in str(caught.value)
    assert names(tmp_path) == {"run.json", "unit"}


def test_other_code_is_refused_and_named(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS) as run:
        write_sealed(run.record() | {"code": "0" * 16}, run.folder / "run.json")
    with pytest.raises(InputError, match="by other code"), open_run(tmp_path, SETTINGS):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', '{"lr": 0.1}'])
@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_with_a_foreign_record_is_never_touched(
    tmp_path: Path, text: str, replace: bool
) -> None:
    """Another tool's run.json must not cost its user everything that lies beside it."""
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(InputError, match=r"run\.json"),
        open_run(tmp_path, SETTINGS, replace=replace),
    ):
        pass
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
        with (
            pytest.raises(InputError, match="another process is at work"),
            open_run(tmp_path, SETTINGS, replace=replace),
        ):
            pass
        assert names(tmp_path) == {"run.json", ".partial-unit"}


def test_the_folder_is_free_again_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(StoppedError), open_run(tmp_path, SETTINGS):
        raise StoppedError
    with open_run(tmp_path, SETTINGS):
        pass


def test_an_error_of_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    """A pipe that is full raises the same error as a lock that is taken."""
    with pytest.raises(BlockingIOError), open_run(tmp_path, SETTINGS):
        raise BlockingIOError


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


def test_a_process_that_was_killed_before_it_wrote_its_record_can_be_started_again(
    tmp_path: Path,
) -> None:
    (tmp_path / ".partial-record").write_text("{")
    with open_run(tmp_path, SETTINGS):
        assert names(tmp_path) == {"run.json"}


def test_an_existing_run_is_found_and_a_missing_one_refused_by_name(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=f"{folder}: there is no run here"):
            Run.existing(folder)
    with open_run(tmp_path, {"experiments": {"two": {}, "one": {}}}) as run:
        assert Run.existing(tmp_path) == run
        assert run.experiments() == ["two", "one"]
        assert run.sample_submission() is None


def test_of_an_experiment_that_was_changed_the_setting_is_named(tmp_path: Path) -> None:
    def settings(penalty: float) -> dict[str, Any]:
        ranker = f"Ridge(max_configs=1000, max_rows=1000000, penalty={penalty})"
        return {"experiments": {"mine": {"collections": ["tile:xla"], "ranker": ranker}}}

    with open_run(tmp_path, settings(10.0)):
        pass
    named = r"\(mine, ranker: penalty=10\.0\), now penalty=1\.0\)\)"
    with pytest.raises(InputError, match=named), open_run(tmp_path, settings(1.0)):
        pass
