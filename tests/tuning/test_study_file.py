"""The file of a search: wherever it lies, and where there is no room for it."""

import resource
import sqlite3
from pathlib import Path

import optuna
import pytest
from sqlalchemy import event

from solution.system.errors import InputError
from solution.tuning.study_file import STUDY, keep, open_storage, working_copy


@pytest.mark.parametrize("name", ["what?", "a%20b", "{name}", "x=#1?y=2", "plain"])
def test_a_study_lies_in_its_folder_however_that_is_called(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with working_copy(folder) as copy:
        study = optuna.create_study(storage=open_storage(copy), study_name="made")
        study.tell(study.ask(), 0.5)
        keep(copy, folder)
    assert {path.name for path in folder.iterdir()} == {STUDY, f"{STUDY}.seal"}
    assert [path.name for path in tmp_path.iterdir()] == [name]
    stored = optuna.load_study(storage=open_storage(folder / STUDY), study_name="made")
    assert stored.best_value == 0.5


def test_a_disk_that_gets_full_is_said_of_the_study(tmp_path: Path) -> None:
    """SQLite has a limit of its own, which it tells as it tells a full disk."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # no more than there are

    full = pytest.raises(OSError, match=f"No space left on device: '{tmp_path / STUDY}'")
    with full, working_copy(tmp_path) as copy:
        storage = open_storage(copy)
        study = optuna.create_study(storage=storage, study_name="made")
        event.listen(storage.engine, "connect", limit)
        study.set_user_attr("long", "x" * 100_000)
    assert not list(tmp_path.iterdir())


def test_a_study_that_grows_past_a_limit_is_named(tmp_path: Path) -> None:
    """Of a quota and of the largest file SQLite makes the error of a disk that fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused = pytest.raises(InputError, match=r"study\.db: cannot be written \(disk I/O error")
    try:
        with refused, working_copy(tmp_path) as copy:
            study = optuna.create_study(storage=open_storage(copy), study_name="made")
            resource.setrlimit(resource.RLIMIT_FSIZE, (copy.stat().st_size, before[1]))
            study.set_user_attr("long", "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
