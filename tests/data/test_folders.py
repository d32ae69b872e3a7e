"""Finding the npz files in the folder shapes that people have."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from solution.data.folders import (
    GraphFile,
    choose_sample,
    describe_other_samples,
    find_files,
    find_left_out,
    find_roots,
    identify_file,
)
from solution.domain.collection import NAMES, SPLITS
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph, to_arrays, write_graph
from tests.made.guarded import Guard
from tests.made.hostile import NOBODY

KAGGLE = "input/competitions/predict-ai-model-runtime/npz_all/npz"
LAYOUT_FILE = "layout/xla/random/train/program.npz"


def touch(folder: Path, *names: str) -> list[Path]:
    """Empty files: only their places count."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [folder / name for name in names]


def describe(file: GraphFile) -> tuple[str, str, str]:
    return file.collection.name, file.split, file.name


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        find_files(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("prefix", ["npz_all/npz", "npz", ".", KAGGLE])
def test_every_collection_and_split_is_found_below_any_prefix(prefix: str, tmp_path: Path) -> None:
    names = [(name, split) for name in NAMES for split in SPLITS]
    paths = [f"{prefix}/{name.replace(':', '/')}/{split}/{split}-1.npz" for name, split in names]
    written = touch(tmp_path, *paths)
    files = find_files(tmp_path)
    assert [describe(file) for file in files] == [(n, split, f"{split}-1") for n, split in names]
    assert [file.path for file in files] == written


@pytest.mark.parametrize("folder", ["layout/xla/random/train", "layout/xla", LAYOUT_FILE])
def test_part_of_the_download_is_enough(folder: str, tmp_path: Path) -> None:
    touch(tmp_path, LAYOUT_FILE, "tile/xla/train/kernel.npz")
    expected = [("layout:xla:random", "train", "program")]
    assert [describe(file) for file in find_files(tmp_path / folder)] == expected


def test_relative_folder_may_be_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, LAYOUT_FILE)
    monkeypatch.chdir(tmp_path / "layout/xla/random/train")
    for folder in (".", "../train", "../../random", "program.npz"):
        assert len(find_files(Path(folder))) == 1


@pytest.mark.parametrize("linked", ["npz/layout/xla/random/train/program.npz", "npz"])
def test_links_into_a_store_are_followed(linked: str, tmp_path: Path) -> None:
    touch(tmp_path / "data", "npz/layout/xla/random/train/program.npz")
    link, store = tmp_path / "data" / linked, tmp_path / "store" / "0123abcd"
    store.parent.mkdir()
    link.rename(store)
    link.symlink_to(store)
    expected = [("layout:xla:random", "train", "program")]
    assert [describe(file) for file in find_files(tmp_path / "data")] == expected


def test_hidden_macos_and_other_files_are_ignored(tmp_path: Path) -> None:
    folder = "npz/layout/xla/random/train"
    touch(tmp_path, f"npz/{LAYOUT_FILE}", f"{folder}/._program.npz", f"{folder}/notes.txt",
          f"__MACOSX/npz/{LAYOUT_FILE}", f".trash/npz/{LAYOUT_FILE}", "other.npz")  # fmt: skip
    assert [file.path for file in find_files(tmp_path)] == [tmp_path / "npz" / LAYOUT_FILE]


@pytest.mark.parametrize("other", [f"npz/{LAYOUT_FILE}", "layout/xla/random/valid/program.npz"])
def test_same_graph_twice_is_refused_with_both_paths(other: str, tmp_path: Path) -> None:
    paths = touch(tmp_path, LAYOUT_FILE, other)
    message = refusal(tmp_path)
    assert all(str(path) in message for path in paths)


def test_missing_and_empty_folders_and_wrong_places_are_refused(tmp_path: Path) -> None:
    assert "such folder" in refusal(tmp_path / "missing")
    message = refusal(tmp_path)
    assert "random}/{train" in message and "found none." in message
    wrong = ("layout/xla/random/holdout", "layout/xla/train", "layout/xla/random/train/deeper")
    touch(tmp_path, "program.npz", "tile/nlp/train/kernel.npz", *(f"{w}/p.npz" for w in wrong))
    assert "5 npz" in refusal(tmp_path)


def test_files_are_sorted_by_collection_split_and_name(tmp_path: Path) -> None:
    expected = [
        ("layout:xla:default", "test", "a"),
        ("layout:xla:random", "train", "a"),
        ("layout:xla:random", "train", "b"),
        ("layout:xla:random", "valid", "c"),
        ("layout:xla:random", "test", "d"),
        ("layout:nlp:default", "train", "a"),
        ("tile:xla", "train", "a"),
    ]
    # In folders whose own order is the opposite.
    for number, (collection, split, name) in enumerate(reversed(expected)):
        touch(tmp_path, f"{number}/{collection.replace(':', '/')}/{split}/{name}.npz")
    assert [describe(file) for file in find_files(tmp_path)] == expected


SAMPLE_TEXT = "ID,TopConfigs\ntile:xla:kernel,0;1;2;3;4\n"


@pytest.mark.parametrize(("folder", "place"), [
    ("data", "data"), ("data", "data/npz_all"), ("data/npz", "data"), ("data/npz_all", "data"),
    ("data/npz_all/npz", "data/npz_all"), ("data/npz_all/npz", "data"),
])  # fmt: skip
def test_a_sample_is_found_in_below_and_beside(folder: str, place: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    [path] = touch(tmp_path / place, "sample_submission.csv")
    path.write_text(SAMPLE_TEXT, encoding="utf-8")
    assert choose_sample(tmp_path / folder) == path


@pytest.mark.parametrize(
    "text", ["", "id,target\n1,0\n", "ID,TopConfigs\nother:thing,0\n", SAMPLE_TEXT]
)
def test_the_topmost_sample_of_this_competition_is_found(tmp_path: Path, text: str) -> None:
    top, deep = touch(tmp_path, "sample_submission.csv", "ours/sample_submission.csv")
    top.write_text(text, encoding="utf-8")
    deep.write_text(SAMPLE_TEXT, encoding="utf-8")
    assert choose_sample(tmp_path) == (top if text == SAMPLE_TEXT else deep)


def test_of_several_samples_the_one_with_most_rows_is_taken_and_the_others_told(
    tmp_path: Path,
) -> None:
    top, deep, same = touch(
        tmp_path, *(f"{place}sample_submission.csv" for place in ("", "whole/", "whole/copy/"))
    )
    top.write_text(SAMPLE_TEXT + "\n\n", encoding="utf-8")
    for path in (deep, same):
        path.write_text(f"{SAMPLE_TEXT}tile:xla:other,0;1;2;3;4\n", encoding="utf-8")
    assert choose_sample(tmp_path) == deep
    (words,) = describe_other_samples(tmp_path)
    assert f": {top}. " in words and f" {deep}," in words and str(same) not in words
    top.unlink()
    assert describe_other_samples(tmp_path) == []
    for path in (deep, same):
        path.unlink()
    assert (choose_sample(tmp_path), describe_other_samples(tmp_path)) == (None, [])


def test_identify_file_reads_the_path_first(tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(), tmp_path, "valid")
    assert describe(identify_file(path)) == ("layout:xla:random", "valid", "program")
    named = identify_file(path, "layout:nlp:default")
    assert describe(named) == ("layout:nlp:default", "train", "program")


def test_identify_file_reads_the_arrays_but_no_layout_collection(tmp_path: Path) -> None:
    kernel, program = tmp_path / "kernel.npz", tmp_path / "program.npz"
    np.savez(kernel, **to_arrays(make_tile_graph()))
    assert describe(identify_file(kernel)) == ("tile:xla", "train", "kernel")
    np.savez(program, **to_arrays(make_layout_graph()))
    with pytest.raises(InputError, match="--collection"):
        identify_file(program)
    assert identify_file(program, "layout:xla:random").path == program


@pytest.mark.parametrize(("name", "collection", "words"), [
    ("missing.npz", "tile:xla", "no such file"), ("kernel.npz", "tile:nlp", "The five"),
    (".", "tile:xla", r"is a folder\. Give one npz file"), ("kernel.npz", None, "truncated or"),
])  # fmt: skip
def test_identifying_refuses(name: str, collection: str | None, words: str, tmp_path: Path) -> None:
    touch(tmp_path, "kernel.npz")
    with pytest.raises(InputError, match=words):
        identify_file(tmp_path / name, collection)


TEST = "tile/xla/test"
OFF = (f"{TEST}/a.NPZ", f"{TEST}/test/b.npz", f"{TEST}/c.npz.part", "tile/xla/Test/d.npz")


@pytest.mark.parametrize("name", OFF)
def test_a_graph_whose_place_or_ending_is_slightly_off_is_named(name: str, tmp_path: Path) -> None:
    _, path = touch(tmp_path, LAYOUT_FILE, name)
    assert len(find_files(tmp_path)) == 1
    (words,) = find_left_out(tmp_path)
    assert "1 npz file" in words and str(path) in words
    touch(tmp_path, *OFF)
    (words,) = find_left_out(tmp_path)
    assert "4 npz files" in words and "1 more" in words
    assert words.count(str(tmp_path)) == 3


def test_files_that_are_used_or_are_no_data_are_not_named(tmp_path: Path) -> None:
    other = ["tile/xla/train/notes.txt", "tile/xla/train/._a.npz", "npz_all.tar"]
    *_, path = touch(tmp_path, LAYOUT_FILE, *other, "sample_submission.csv")
    path.write_text(SAMPLE_TEXT, encoding="utf-8")
    assert find_left_out(tmp_path) == [] and find_left_out(tmp_path / LAYOUT_FILE) == []


@pytest.mark.parametrize("linked", ["default", "another"])
def test_a_folder_that_a_link_makes_another_counts_as_both(linked: str, tmp_path: Path) -> None:
    """A link with a name that is no collection's adds nothing."""
    touch(tmp_path, LAYOUT_FILE)
    (tmp_path / "layout/xla" / linked).symlink_to("random")
    names = ["layout:xla:default", "layout:xla:random"][linked == "another" :]
    found = [describe(file) for file in find_files(tmp_path)]
    assert found == [(name, "train", "program") for name in names]


def test_links_to_folders_above_and_to_each_other_have_an_end(tmp_path: Path) -> None:
    (path,) = touch(tmp_path, LAYOUT_FILE)
    path.with_name("train").symlink_to(".")
    path.with_name("layout").symlink_to("../../../../layout")
    (tmp_path / "npz").symlink_to(".")
    for here, other in ("ab", "ba"):
        (tmp_path / here).mkdir()
        (tmp_path / here / "train").symlink_to(tmp_path / other)
    assert len(find_files(tmp_path)) == 1
    assert find_left_out(tmp_path) == []


def test_a_folder_called_like_a_file_many_ways_and_a_long_path_add_nothing(tmp_path: Path) -> None:
    touch(tmp_path, LAYOUT_FILE)
    (tmp_path / LAYOUT_FILE).with_name("folder.npz").mkdir()
    for depth in range(11):  # two links to the next folder, in each: 2^11 ways to the last
        here, below = tmp_path / str(depth), tmp_path / str(depth + 1)
        here.mkdir(exist_ok=True)
        below.mkdir()
        for name in "ab":
            (here / name).symlink_to(below)
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(12):  # 3,000 characters
        os.mkdir("d" * 250, dir_fd=deep)
        deep = os.open("d" * 250, os.O_RDONLY, dir_fd=deep)
    os.close(os.open("x.npz", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    assert [file.path for file in find_files(tmp_path)] == [tmp_path / LAYOUT_FILE]


@pytest.mark.parametrize("start", ["\ufeffID,TopConfigs", '"ID","TopConfigs"', "ID,TopConfigs\r"])
@pytest.mark.parametrize("row", ["tile:xla:kernel,0;1", '"tile:xla:kernel","0;1"'])
def test_a_sample_that_was_saved_again_counts(start: str, row: str, tmp_path: Path) -> None:
    (path,) = touch(tmp_path, "sample_submission.csv")
    path.write_text(f"{start}\n{row}\n", encoding="utf-8", newline="")
    assert choose_sample(tmp_path) == path and find_left_out(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["", "ID;TopConfigs\n", "ID,TopConfigs\nother:thing,0\n", "\0\n\0"]
)
def test_a_file_of_the_samples_name_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    (path,) = touch(tmp_path, "sample_submission.csv")
    path.write_text(text, encoding="utf-8")
    assert choose_sample(tmp_path) is None
    (words,) = find_left_out(tmp_path)
    assert re.match(rf"1 file called sample_submission.csv left out.*{path}\.$", words)


FINDERS = (find_files, find_roots, choose_sample)


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
    with pytest.raises(InputError, match="it readable") as caught:
        guard.call(call_as_nobody, find, data)
    assert str(caught.value).startswith(f"{data / closed}: the folder cannot be read: Permission")


def test_the_folder_that_a_disk_keeps_for_root_is_passed_over(data: Path, guard: Guard) -> None:
    (data / "lost+found").mkdir(mode=0)
    assert len(guard.call(call_as_nobody, find_files, data)) == 2  # type: ignore[arg-type]
