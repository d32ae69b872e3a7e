"""All measured programs as one file: the same bytes for the same data, and it is used as it is."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from solution.collecting.release import pack
from solution.data.folders import SAMPLE, find_files
from solution.system.errors import InputError
from tests.conftest import REPOSITORY, SHARED, FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

README = REPOSITORY / "docs" / "measured-programs.md"


def make_data(folder: Path) -> Path:
    """Four kernels and a program that are learned from, one of each to be ranked."""
    for number in range(4):
        write_graph(make_tile_graph(number, name=f"k{number}"), folder, "train")
    write_graph(make_layout_graph(0, name="p0"), folder, "valid")
    write_graph(make_layout_graph(1, name="asked", labelled=False), folder, "test")
    write_graph(make_tile_graph(9, name="k9", labelled=False), folder, "test")
    (folder / "sample_submission.csv").write_text("ID,TopConfigs\ntile:xla:k9,0;1;2;3;4\n")
    return folder


def test_a_release_is_unpacked_compared_and_run_on(fastslow: FastSlow, tmp_path: Path) -> None:
    made = pack(make_data(tmp_path / "measured"), README, tmp_path / "build" / "measured.zip")
    assert made.graphs == 7
    with zipfile.ZipFile(made.path) as archive:
        archive.extractall(tmp_path / "clone")
    there = tmp_path / "clone" / "measured"
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=there, check=True)
    words = (there / "README.md").read_text(encoding="utf-8")
    assert words.startswith(README.read_text(encoding="utf-8").rstrip())
    assert re.search(r"\| tile:xla \| 4 / 0 / 1 \| \d+ \| \d+\.\d\d \|", words)
    assert "layout:xla:random 1 of 1" in words  # it has the operations of the valid one

    assert "All 7 files are sound" in fastslow("check", there).stdout
    ran = fastslow("run", there, "--experiment", "nothing_001", "--folds", "2", "--run", "out")
    assert "out/submission.csv (1 row, checked)" in ran.stdout, ran.stderr


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (make_data(tmp_path / name / "measured") for name in ("one", "two"))
    for number, path in enumerate(sorted(second.rglob("*"))):  # other times, other rights
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (number, number))
    (second / "log").mkdir()
    (second / "log" / "state.json").write_text("{}")  # what a collection leaves beside its files
    one = pack(first, README, tmp_path / "one.zip")
    two = pack(second, README, tmp_path / "two.zip")
    assert one.path.read_bytes() == two.path.read_bytes()

    readme = tmp_path / "other.md"
    readme.write_text("# Other words\n")
    other = pack(first, readme, tmp_path / "other.zip")
    assert other.data_digest == one.data_digest
    assert other.path.read_bytes() != one.path.read_bytes()


def test_a_defective_file_is_not_published(tmp_path: Path) -> None:
    folder, out = make_data(tmp_path / "measured"), tmp_path / "measured.zip"
    (path,) = folder.rglob("k2.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"nothing is packed, for 1 file cannot be used:\n.*k2"):
        pack(folder, README, out)
    path.unlink()
    with pytest.raises(InputError, match=r"nowhere\.md: expected how the data were measured"):
        pack(folder, tmp_path / "nowhere.md", out)
    assert not out.exists()


def test_make_says_where_the_data_are_if_they_are_not_here(tmp_path: Path) -> None:
    for target in ("papers", "bench-tile", "bench-layout", "release-data"):
        command = ["make", target, f"SHARED={tmp_path}"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"{tmp_path}/cpugraphs: there is no such folder" in done.stderr
        assert "docs/measured-programs.md" in done.stderr
        assert not done.stdout


def test_the_published_digest_is_that_of_the_measured_programs(tmp_path: Path) -> None:
    folder = SHARED / "cpugraphs"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    made = pack(folder, README, tmp_path / "cpugraphs.zip")
    assert made.data_digest in README.read_text(encoding="utf-8")
    assert made.graphs == 843


def test_the_sample_is_a_part_of_them() -> None:
    folder = SHARED / "cpugraphs"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    for file in find_files(SAMPLE):
        whole = folder / file.path.relative_to(SAMPLE)
        assert whole.read_bytes() == file.path.read_bytes()
