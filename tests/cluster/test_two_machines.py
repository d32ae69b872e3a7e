"""Two machines that write one folder of a bucket: neither writes over the other without a word."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from solution.data.folders import SAMPLE
from solution.system.buckets import Mirror, on_this_machine
from solution.system.errors import InputError
from tests.made.guarded import largest_file
from tests.processes import TRAINING


@pytest.fixture
def url(bucket: list[str], request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name[:40]}"


def make_mirror(url: str, machine: Path) -> Mirror:
    found = Mirror(url, machine / "mirror")
    found.pull()
    return found


def write(mirror: Mirror, **files: str) -> None:
    mirror.folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (mirror.folder / f"{name}.json").write_text(text)


def look() -> Any:
    """What stands in the bucket now."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    return s3fs.S3FileSystem()


def read(url: str, name: str) -> str:
    content: bytes = look().cat(f"{url}/{name}.json")
    return content.decode()


def test_the_second_is_refused_and_keeps_what_it_made(url: str, tmp_path: Path) -> None:
    one, other = (make_mirror(url, tmp_path / name) for name in ("one", "other"))
    write(one, run="of one", a="a")
    one.push()
    write(other, run="of the other", b="b")
    with pytest.raises(InputError, match="written run"):
        other.push()
    assert read(url, "run") == "of one"
    assert (other.folder / "b.json").read_text() == "b"
    other.pull()  # as the same command does that is given again
    assert (other.folder / "run.json").read_text() == "of one"
    other.push()
    assert read(url, "b") == "b"


def test_what_was_changed_on_both_machines_is_refused(url: str, tmp_path: Path) -> None:
    one = make_mirror(url, tmp_path / "one")
    write(one, scores="first")
    one.push()
    other = make_mirror(url, tmp_path / "other")
    write(one, scores="of one")
    one.push()
    write(other, scores="of the other", new="new")
    with pytest.raises(InputError, match="written scores"):
        other.push()
    assert read(url, "scores") == "of one"
    other.push(over=True)
    assert read(url, "scores") == "of the other"


def test_a_record_that_another_machine_wrote_stops_the_rest(url: str, tmp_path: Path) -> None:
    """Even where this one has not changed it: what would be sent belongs to it no more."""
    one = make_mirror(url, tmp_path / "one")
    write(one, run="first")
    one.push()
    other = make_mirror(url, tmp_path / "other")
    write(other, run="of the other")
    other.push()
    write(one, model="trained")
    with pytest.raises(InputError, match="written run"):
        one.push()


def test_what_both_made_alike_is_no_conflict(url: str, tmp_path: Path) -> None:
    """As a store that two machines prepare from the same data."""
    one, other = (make_mirror(url, tmp_path / name) for name in ("one", "other"))
    for mirror in (one, other):
        write(mirror, store="the same", graph="the same as well")
        mirror.push()
    other.push()
    assert not list(tmp_path.rglob(".partial-*"))


def test_nobody_else_there_takes_one_list(url: str, bucket: list[str], tmp_path: Path) -> None:
    mirror = make_mirror(url, tmp_path / "one")
    write(mirror, **{f"file{number}": "text" for number in range(20)})
    mirror.push()
    before = len(bucket)
    mirror.push()  # nothing has changed
    assert len(bucket) == before
    write(mirror, **{f"file{number}": "other text" for number in range(20)})
    mirror.push()
    lists = [line for line in bucket[before:] if "list-type=2" in line and "max-keys" not in line]
    assert len([line for line in lists if "file" not in line]) <= 2, lists


def test_of_two_runs_at_once_none_is_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is first: what a command that succeeded has made is what the record says."""
    words = ["run", SAMPLE, "--limit", "--workers", "1", "--store", f"{url}/s", "--run", f"{url}/r"]
    names, programs = ("linear_ridge_001", "linear_lasso_001"), []
    for name in names:
        monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / name))
        programs.append(TRAINING.start(*words, "--experiment", name, cwd=tmp_path))
        # In the very same moment, both may look before either has written.
        while not look().exists(f"{url}/r/run.json") and programs[-1].poll() is None:
            time.sleep(0.02)
    printed = [" ".join(program.communicate(300)[1].split()) for program in programs]
    codes = [program.returncode for program in programs]
    for code, error in zip(codes, printed, strict=True):
        assert "Traceback" not in error
        assert code == 0 or "another machine has written" in error, error
    made = json.loads(read(f"{url}/r", "run"))["settings"]["experiments"]
    assert all(name in made for name, code in zip(names, codes, strict=True) if code == 0)
    # Where each of them came in the way of the other, both are refused; then the same command goes
    # on with what is there.
    for name in [name for name, code in zip(names, codes, strict=True) if code != 0]:
        monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / name))
        again = TRAINING.run(*words, "--experiment", name, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
    assert set(names) <= set(json.loads(read(f"{url}/r", "run"))["settings"]["experiments"])


def test_an_error_about_a_run_names_its_address(url: str, tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=f"^{url}/run.json: is damaged")
    with refused, on_this_machine(url) as folder:
        raise InputError(f"{folder}/run.json: is damaged")


def test_a_file_that_does_not_fit_is_named(bucket: list[str], tmp_path: Path) -> None:
    import s3fs

    s3fs.S3FileSystem().pipe("bucket/full/large.npz", b"x" * 100_000)
    mirror = Mirror("s3://bucket/full", tmp_path / "mirror")
    words = rf"{mirror.folder}/large\.npz: cannot be kept \(File too large\), in the mirror of s3:"
    with largest_file(20 << 10), pytest.raises(InputError, match=words):
        mirror.pull()
    mirror.pull()
    assert (mirror.folder / "large.npz").stat().st_size == 100_000


@pytest.mark.parametrize("place", ["file", "/proc/x", "file/deeper"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_place_where_no_mirror_can_be_names_the_variable(
    place: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / place))
    words = f"The mirrors of buckets are kept in {tmp_path / place}: set FASTSLOW_MIRRORS"
    with pytest.raises(InputError, match=words), on_this_machine("s3://bucket/x", alone=alone):
        pass
