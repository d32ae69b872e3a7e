"""Data that changes after it was prepared, and places where no store may be made."""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.test_npz_rows import arrays_of, write
from tests.attacks.test_store_rows import prepare
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.processes import FASTSLOW
from tests.store.test_store import SAMPLE_ROWS, snapshot, write_data

pytestmark = pytest.mark.slow
REFUSED, FOLLOWED, SAME = "refused", "followed", "same"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (write_data(tmp_path) / "sample_submission.csv").write_text(SAMPLE_ROWS)
    prepare(tmp_path)
    return tmp_path


def find(place: Path, name: str) -> Path:
    (path,) = (place / "data").rglob(f"{name}.npz")
    return path


def change_one(place: Path) -> None:
    write_graph(make_layout_graph(99, name="program_1"), place / "data")


def remove_one(place: Path) -> None:
    find(place, "program_1").unlink()


def add_one(place: Path) -> None:
    write_graph(make_tile_graph(9, name="new"), place / "data")


def add_and_remove(place: Path) -> None:
    add_one(place)
    remove_one(place)


def touch(place: Path) -> None:
    for path in (place / "data").rglob("*"):
        os.utime(path, (1, 1))


def break_one(place: Path) -> None:
    path = find(place, "program_1")
    path.write_bytes(path.read_bytes()[:-30])


def compress_again(place: Path) -> None:
    path = find(place, "program_1")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def move_to_another_split(place: Path) -> None:
    path = find(place, "kernel_1")
    target = path.parents[1] / "train" / path.name
    target.parent.mkdir(exist_ok=True)
    path.rename(target)


def become_another_kind(place: Path) -> None:
    write(find(place, "program_1"), arrays_of("tile"))


def change_the_sample(place: Path) -> None:
    text = "ID,TopConfigs\ntile:xla:kernel_0,4;3;2;1;0\n"
    (place / "data" / "sample_submission.csv").write_text(text)


def remove_the_sample(place: Path) -> None:
    (place / "data" / "sample_submission.csv").unlink()


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "one file changed": (change_one, REFUSED),
    "removed": (remove_one, REFUSED),
    "added": (add_one, FOLLOWED),
    "added and removed": (add_and_remove, REFUSED),
    "touched": (touch, SAME),
    "broken": (break_one, REFUSED),
    "compressed again": (compress_again, SAME),
    "moved to another split": (move_to_another_split, REFUSED),
    "of another kind": (become_another_kind, REFUSED),
    "sample changed": (change_the_sample, FOLLOWED),
    "sample removed": (remove_the_sample, FOLLOWED),
}


@pytest.mark.parametrize("name", CHANGES)
def test_data_that_changes(name: str, place: Path) -> None:
    change, expected = CHANGES[name]
    before = snapshot(place / "store")
    change(place)
    done = FASTSLOW.run("prepare", "data", "--out", "store", "--workers", "1", cwd=place)
    assert "Traceback" not in done.stderr
    if expected == REFUSED:
        assert done.returncode == 2
        assert "data" in done.stderr or "store" in done.stderr
        assert snapshot(place / "store") == before
        return
    assert done.returncode == 0, done.stderr
    words = ("prepare", "data", "--out", "anew", "--workers", "1")
    if expected == FOLLOWED:
        assert FASTSLOW.run(*words, cwd=place).returncode == 0
        assert snapshot(place / "store") == snapshot(place / "anew") != before
    else:
        assert snapshot(place / "store") == before


def be_a_file(place: Path) -> Path:
    (place / "out").write_text("mine")
    return place / "out"


def be_a_link_to_nothing(place: Path) -> Path:
    (place / "out").symlink_to("nothing")
    return place / "out"


def be_someones(place: Path) -> Path:
    (place / "out").mkdir()
    (place / "out" / "notes.txt").write_text("mine")
    return place / "out"


def be_a_run(place: Path) -> Path:
    (place / "out").mkdir()
    (place / "out" / "run.json").write_text("{}")
    return place / "out"


PLACES: dict[str, Callable[[Path], Path]] = {
    "the data": lambda place: place / "data",
    "a file": be_a_file,
    "/dev/null": lambda _: Path("/dev/null"),
    "a link to nothing": be_a_link_to_nothing,
    "someone's folder": be_someones,
    "a run": be_a_run,
    "below a file": lambda place: be_a_file(place) / "store",
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("more", [(), ("--replace",)], ids=["", "replace"])
def test_a_place_that_is_not_ours(name: str, more: tuple[str, ...], place: Path) -> None:
    out = PLACES[name](place)
    shutil.rmtree(place / "store")
    before = snapshot(place)
    done = FASTSLOW.run("prepare", "data", "--out", out, *more, cwd=place)
    assert done.returncode == 2, done.stderr
    assert str(out) in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert snapshot(place) == before
