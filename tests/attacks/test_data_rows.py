"""Folders of data that hold pipes, devices, loops and locks, and files that change meanwhile."""

import dataclasses
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solution.data.folders import find_files
from solution.data.scan import scan
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow
SPLIT = "npz/tile/xla/train"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all may read; those of pytest are its user's own."""
    with tempfile.TemporaryDirectory(prefix="rows-") as name:
        Path(name).chmod(0o755)
        write_graph(make_tile_graph(name="sound"), Path(name, "data"))
        yield Path(name)
        for path in Path(name).rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)


def look(data: Path) -> tuple[list[str], list[str]]:
    """As `fastslow check` does: the graphs, and what is wrong with others."""
    summaries, defects = scan(find_files(data))
    return summaries["graph"].to_list(), defects


def prepare(data: Path) -> list[str]:
    store = prepare_store(find_files(data), data.with_name("store"), Preparation(), workers=1)
    return Store.open(store.folder).graphs["graph"].to_list()


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def write(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


STRANGE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "socket": put_socket,
    "link to /dev/zero": link("/dev/zero"),
    "link to /dev/urandom": link("/dev/urandom"),
    "link to /dev/null": link("/dev/null"),
    "link to memory of a process": link("/proc/self/mem"),
    "link to nothing": link("nothing"),
    "link to itself": link("odd.npz"),
    "empty": write(b""),
    "no zip": write(b"no zip"),
    "gigabytes of nothing": lambda path: path.touch() or os.truncate(path, 1 << 40),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_file_is_named(name: str, place: Path, guard: Guard) -> None:
    """`check` names it beside what is sound, `prepare` refuses, and neither waits or fills up."""
    path = place / "data" / SPLIT / "odd.npz"
    STRANGE[name](path)
    if name == "folder":  # and nothing that is in it is meant
        assert guard.call(look, place / "data") == (["sound"], [])
        assert guard.call(prepare, place / "data") == ["sound"]
        return
    graphs, (defect,) = guard.call(look, place / "data")
    assert graphs == ["sound"]
    assert defect.startswith(f"{path}: ")
    with pytest.raises(InputError, match="odd.npz: "):
        guard.call(prepare, place / "data")


def link_without_end(data: Path) -> None:
    """Two links to the next folder, in each of eleven: 2^11 ways to the last."""
    for depth in range(11):
        here, below = data / str(depth), data / str(depth + 1)
        here.mkdir(exist_ok=True)
        below.mkdir()
        for name in "ab":
            (here / name).symlink_to(below)


def put_deep(data: Path) -> None:
    """Below a path of 3,000 characters."""
    here = os.open(data, os.O_RDONLY)
    for _ in range(12):
        os.mkdir("d" * 250, dir_fd=here)
        here = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
    with open(os.open("x.npz", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:  # noqa: PTH123
        file.write(b"not in the folder of a collection")


HARMLESS = {"2^11 ways through links": link_without_end, "path of 3,000 characters": put_deep}


@pytest.mark.parametrize("name", HARMLESS)
def test_each_file_is_read_once(name: str, place: Path, guard: Guard) -> None:
    HARMLESS[name](place / "data")
    assert guard.call(look, place / "data") == (["sound"], [])
    assert guard.call(prepare, place / "data") == ["sound"]


@dataclasses.dataclass(frozen=True)
class ChangingPreparation(Preparation):
    """Somebody changes the file while it is prepared."""

    path: str = ""
    other: str = ""

    def __call__(self, graph: Graph) -> Graph:
        Path(self.path).unlink()
        if self.other:
            Path(self.other).rename(self.path)
        return super().__call__(graph)


@pytest.mark.parametrize("how", ["replaced", "deleted"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_file_that_changes_is_said(how: str, when: str, place: Path) -> None:
    """And afterwards the same command makes what is there."""
    files, (path,) = find_files(place / "data"), (place / "data").rglob("*.npz")
    other = write_graph(make_tile_graph(1, name="sound"), place / "other")
    store, change = place / "store", str(other) if how == "replaced" else ""
    meanwhile = ChangingPreparation(path=str(path), other=change)
    if when == "before":
        meanwhile(make_tile_graph())
    if (how, when) != ("replaced", "before"):  # which nobody can see
        with pytest.raises(InputError, match=r"sound.npz: (was changed|there is no such file)"):
            prepare_store(files, store, Preparation() if when == "before" else meanwhile, workers=1)
    write_graph(make_tile_graph(int(how == "replaced"), name="sound"), place / "data")
    made = prepare_store(find_files(place / "data"), store, Preparation(), workers=1)
    again = prepare_store(find_files(place / "data"), place / "again", Preparation(), workers=1)
    assert made.graphs.equals(again.graphs)
