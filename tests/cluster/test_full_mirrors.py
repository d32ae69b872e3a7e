"""Where a mirror cannot be kept, its file or its variable is named, and not the bucket's rights."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from solution.system.buckets import Mirror, on_this_machine
from solution.system.errors import InputError
from tests.conftest import FastSlow


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may have more bytes; SIGXFSZ is ignored by Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_does_not_fit_is_named(bucket: list[str], tmp_path: Path) -> None:
    import s3fs

    s3fs.S3FileSystem().pipe("bucket/full/large.npz", b"x" * 100_000)
    mirror = Mirror("s3://bucket/full", tmp_path / "mirror")
    words = rf"{mirror.folder}/large\.npz: cannot be kept \(File too large\), in the mirror of s3:"
    with largest_file(20 << 10), pytest.raises(InputError, match=words):
        mirror.pull()
    mirror.pull()
    assert (mirror.folder / "large.npz").stat().st_size == 100_000


def test_a_bucket_that_refuses_is_still_named_as_it(bucket: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="s3://nowhere-at-all/x: there is no file|cannot be reach"):
        Mirror("s3://nowhere-at-all/x", tmp_path / "mirror").pull(must_exist=True)


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


def test_the_command_says_it_in_one_sentence(
    fastslow: FastSlow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / "file"))
    done = fastslow("run", "--limit", "--run", "s3://bucket/x")
    assert done.returncode == 2
    assert "set FASTSLOW_MIRRORS" in " ".join(done.stderr.split())
