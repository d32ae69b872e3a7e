"""A folder that cannot be read is an error: what is in it would be missing in every result."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solution.data.folders import find_files, find_roots, find_sample_submission
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, write_graph
from tests.made.guarded import Guard

NOBODY = 65534
FINDERS = (find_files, find_roots, find_sample_submission)


@pytest.fixture
def data() -> Iterator[Path]:
    """Two splits, where other users may look, which pytest's own folders do not allow."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    write_graph(make_layout_graph(name="one"), folder / "data")
    write_graph(make_layout_graph(name="two"), folder / "data", "valid")
    yield folder / "data"
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def call_as_nobody(function: Callable[[Path], object], folder: Path) -> object:
    """The superuser may read everything, so he becomes another one for a while."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        return function(folder)
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("find", FINDERS)
@pytest.mark.parametrize("closed", ["npz/layout/xla/random/valid", "npz", "."])
def test_a_folder_that_cannot_be_read_is_named(
    closed: str, find: Callable[[Path], object], data: Path, guard: Guard
) -> None:
    (data / closed).chmod(0)
    with pytest.raises(InputError, match="Make it readable") as caught:
        guard.call(call_as_nobody, find, data)
    assert str(caught.value).startswith(f"{data / closed}: the folder cannot be read: Permission")


def test_without_such_a_folder_the_same_user_finds_all(data: Path, guard: Guard) -> None:
    """The refusals above are those of the folder."""
    assert len(guard.call(call_as_nobody, find_files, data)) == 2  # type: ignore[arg-type]


def test_the_folder_that_a_disk_keeps_for_root_is_passed_over(data: Path, guard: Guard) -> None:
    (data / "lost+found").mkdir(mode=0)
    assert len(guard.call(call_as_nobody, find_files, data)) == 2  # type: ignore[arg-type]


def test_a_single_file_has_no_folder_to_be_read(data: Path) -> None:
    (path,) = data.rglob("one.npz")
    assert len(find_files(path)) == 1
    assert find_sample_submission(path) is None
