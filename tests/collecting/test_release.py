"""Releases of measured programs, and the bundled sample of them."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from benchmarks.collected_sample import COUNTS, Sample, draw_drafts, find_architectures
from benchmarks.release import pack
from solution.analysis.data_check import check_files
from solution.collecting.families import write_programs
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.programs.child import Child, Limits
from solution.programs.program import read_programs
from solution.system.errors import InputError
from tests.conftest import REPOSITORY, SHARED, FastSlow, refuse
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

README = REPOSITORY / "docs" / "measured-programs.md"


def make_data(folder: Path) -> Path:
    """Write four training kernels, a validation program, and a test graph of each kind."""
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

    assert "7 files" in fastslow("check", there).stdout
    ran = fastslow("run", there, "--experiment", "nothing_001", "--folds", "2", "--run", "out")
    assert "out/submission.csv (1 row, checked)" in ran.stdout, ran.stderr


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (make_data(tmp_path / name / "measured") for name in ("one", "two"))
    for number, path in enumerate(sorted(second.rglob("*"))):  # other times and permissions
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (number, number))
    (second / "log").mkdir()
    (second / "log" / "state.json").write_text("{}")  # a file of a collection
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
    with pytest.raises(InputError, match="1"):
        pack(folder, README, out)
    path.unlink()
    with pytest.raises(InputError, match="nowhere.md"):
        pack(folder, tmp_path / "nowhere.md", out)
    assert not out.exists()


def test_make_names_the_missing_data(tmp_path: Path) -> None:
    for target in ("papers", "release-data"):
        command = ["make", target, f"SHARED={tmp_path}"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert f"{tmp_path}/cpugraphs: there is no such folder" in refuse(done)
        assert "docs/measured-programs.md" in done.stderr and not done.stdout


COLLECTED = REPOSITORY / "solution" / "data" / "collected"


def read_layouts() -> dict[tuple[str, str], list[str]]:
    """Return architectures by collection and split."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in find_files(COLLECTED):
        if file.collection.kind == "layout":
            architecture = read_graph(file.path, file.collection).architecture
            found.setdefault((file.collection.name, file.split), []).append(architecture)
    return found


def test_every_bundled_file_is_sound_and_no_architecture_is_repeated() -> None:
    _, defects, _ = check_files(find_files(COLLECTED))
    assert not defects
    layouts = read_layouts()
    for name in {name for name, _ in layouts}:
        found = [a for (other, _), some in layouts.items() if other == name for a in some]
        assert len(set(found)) == len(found) > 10


def test_no_test_graph_is_among_them() -> None:
    if not (SHARED / "cpugraphs").is_dir():
        pytest.skip("the measured CPU graphs are not here")
    tested = find_architectures(SHARED / "cpugraphs")
    assert len(tested) > 10
    assert not tested & {a for found in read_layouts().values() for a in found}


def test_collected_drafts_are_not_collected_again() -> None:
    """Each note has its graph; the drafts are drawn in the same order everywhere."""
    sample = Sample(COLLECTED, set(), workers=None, say=print)
    for name in COUNTS:
        notes = COLLECTED / "drafts" / name.replace(":", "-")
        known = {path.stem for path in notes.glob("*.json")}
        assert known <= {draft.name for draft in draw_drafts(name)}
        following = sample.find_next(name)
        assert (following is None) == (sample.count(name) == COUNTS[name])
        assert following is None or following.name not in known
        assert sample.count(name) == len(graphs_of(name))


def test_programs_of_a_family_are_reproducible_and_can_be_read(tmp_path: Path) -> None:
    """Different numbers are different programs."""
    paths = write_programs(tmp_path / "one", "mlp", 3)
    again = write_programs(tmp_path / "other", "mlp", 2)
    assert [path.read_text() for path in again] == [path.read_text() for path in paths[:2]]
    with Child(Limits()) as child:
        programs = [program for path in paths[:2] for program in read_programs(path, child)]
    assert [program.name for program in programs] == ["mlp_000", "mlp_001"]
    assert len({program.digest for program in programs}) == 2
    with pytest.raises(InputError, match="families convnet"):
        write_programs(tmp_path, "lstm", 1)


def graphs_of(name: str) -> list[Path]:
    return [file.path for file in find_files(COLLECTED) if file.collection.name == name]
