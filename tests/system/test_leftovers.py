"""What a killed process left is removed, and nothing that others have below the same folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solution.choosing.journal import Journal as ChoosingJournal
from solution.collecting.journal import Journal as CollectingJournal
from solution.runs.record import open_run
from solution.system.files import remove_leftovers, write_sealed
from solution.tuning.study_file import working_copy

# Of a search that is at work, of a run that is called as an experiment's folder is, and one's own.
OTHERS = (
    "a/.partial-study.db",
    "runs/test/.partial-0123456789abcdef",
    "mine/test/.partial-0123456789abcdef",
    "mydocs/.partial-notes.txt",
)


def tune(folder: Path) -> None:
    with working_copy(folder):
        pass


def run(folder: Path) -> None:
    with open_run(folder, {"experiments": {"one": {}}}):
        pass


def choose(folder: Path) -> None:
    ChoosingJournal.open(folder, {})


def collect(folder: Path) -> None:
    write_sealed({"identity": {}}, folder / "state.json")
    CollectingJournal(folder, {})


def list_all(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(".partial-*"))


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("half")


@pytest.mark.parametrize("work", [tune, run, choose, collect])
def test_a_folder_above_those_of_others_leaves_theirs(
    work: Callable[[Path], None], tmp_path: Path
) -> None:
    if work is run:  # it is begun in an empty folder only
        run(tmp_path)
    write(tmp_path, ".partial-own", *OTHERS)
    work(tmp_path)
    assert list_all(tmp_path) == sorted(OTHERS)


def test_those_in_folders_that_are_named_are_removed_too(tmp_path: Path) -> None:
    write(tmp_path, ".partial-own", "graphs/.partial-a", "graphs/tile/xla/train/.partial-b")
    write(tmp_path, *OTHERS)
    remove_leftovers(tmp_path, ["graphs/**"])
    assert list_all(tmp_path) == sorted(OTHERS)
