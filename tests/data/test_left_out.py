"""Files that are nearly graphs or samples are named, and a link makes a folder what it says."""

from pathlib import Path

import pytest

from solution.data.folders import find_files, find_left_out, find_sample_submission
from tests.data.test_folders import LAYOUT_FILE, SAMPLE_TEXT, describe, touch

TEST = "tile/xla/test"
OFF = (f"{TEST}/a.NPZ", f"{TEST}/test/b.npz", f"{TEST}/c.npz.part", "tile/xla/Test/d.npz")


@pytest.mark.parametrize("name", OFF)
def test_a_graph_whose_place_or_ending_is_slightly_off_is_named(name: str, tmp_path: Path) -> None:
    _, path = touch(tmp_path, LAYOUT_FILE, name)
    assert len(find_files(tmp_path)) == 1
    (words,) = find_left_out(tmp_path)
    assert words.startswith("1 npz file left out, not called and placed as layout/")
    assert words.endswith(f": {path}.")


def test_of_many_the_first_are_named(tmp_path: Path) -> None:
    touch(tmp_path, *OFF)
    (words,) = find_left_out(tmp_path)
    assert words.startswith("4 npz files left out")
    assert words.count(str(tmp_path)) == 3
    assert words.endswith(" and 1 more.")


def test_of_what_has_its_place_nothing_is_said(tmp_path: Path) -> None:
    touch(
        tmp_path, LAYOUT_FILE, "tile/xla/train/notes.txt", "tile/xla/train/._a.npz", "npz_all.tar"
    )
    (path,) = touch(tmp_path, "sample_submission.csv")
    path.write_text(SAMPLE_TEXT, encoding="utf-8")
    assert find_left_out(tmp_path) == []
    assert find_left_out(tmp_path / LAYOUT_FILE) == []


@pytest.mark.parametrize("linked", ["default", "another"])
def test_a_folder_that_a_link_makes_another_collection_counts_as_both(
    linked: str, tmp_path: Path
) -> None:
    """Another name is none of a collection: what is below it was found in its own place."""
    touch(tmp_path, LAYOUT_FILE)
    (tmp_path / "layout/xla" / linked).symlink_to("random")
    names = (
        ["layout:xla:random"]
        if linked == "another"
        else ["layout:xla:default", "layout:xla:random"]
    )
    found = [describe(file) for file in find_files(tmp_path)]
    assert found == [(name, "train", "program") for name in names]


def test_links_to_folders_above_and_to_each_other_have_an_end(tmp_path: Path) -> None:
    touch(tmp_path, LAYOUT_FILE)
    for place, target in (
        ("layout/xla/random/train/train", "."),
        ("layout/xla/random/train/layout", "../../../../layout"),
        ("npz", "."),
    ):
        (tmp_path / place).symlink_to(target)
    for here, other in ("ab", "ba"):
        (tmp_path / here).mkdir()
        (tmp_path / here / "train").symlink_to(tmp_path / other)
    assert len(find_files(tmp_path)) == 1
    assert find_left_out(tmp_path) == []


@pytest.mark.parametrize("start", ["\ufeffID,TopConfigs", '"ID","TopConfigs"', "ID,TopConfigs\r"])
@pytest.mark.parametrize("row", ["tile:xla:kernel,0;1", '"tile:xla:kernel","0;1"'])
def test_a_sample_that_was_saved_again_counts(start: str, row: str, tmp_path: Path) -> None:
    (path,) = touch(tmp_path, "sample_submission.csv")
    path.write_text(f"{start}\n{row}\n", encoding="utf-8", newline="")
    assert find_sample_submission(tmp_path) == path
    assert find_left_out(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["", "ID;TopConfigs\n", "ID,TopConfigs\nother:thing,0\n", "\0\n\0"]
)
def test_a_file_of_the_samples_name_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    (path,) = touch(tmp_path, "sample_submission.csv")
    path.write_text(text, encoding="utf-8")
    assert find_sample_submission(tmp_path) is None
    (words,) = find_left_out(tmp_path)
    assert words.startswith("1 file called sample_submission.csv left out")
    assert words.endswith(f"{path}.")
