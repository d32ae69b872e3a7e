"""Archives from the network: what is not to be trusted is refused, and nothing is overwritten."""

import io
import stat
import zipfile
from pathlib import Path

import pytest

from solution.system.errors import InputError
from solution.system.names import place_below
from submissions.download import DamagedError, unpack

LIMIT = 10_000_000
Entries = list[tuple[str | zipfile.ZipInfo, bytes]]


def special(name: str, kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (kind | 0o777) << 16
    return entry


def make_archive(entries: Entries) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("good", b"1"), ("../escaped", b"2")], "leads out of the folder"),
        ([("a/../../escaped", b"2")], "leads out of the folder"),
        ([("/tmp/escaped", b"2")], "leads out of the folder"),
        ([("..\\escaped", b"2")], "leads out of the folder"),
        ([("C:\\escaped", b"2")], "leads out of the folder"),
        ([("C:/escaped", b"2")], "leads out of the folder"),
        ([(special("link", stat.S_IFLNK), b"/etc/passwd")], "is a link or another special file"),
        ([(special("pipe", stat.S_IFIFO), b"")], "is a link or another special file"),
        ([(special("folder/", stat.S_IFLNK), b"/etc")], "is a link or another special file"),
        ([("bomb", bytes(LIMIT + 1))], "more than the 0.0 GB that are allowed"),
        ([(f"bomb{n}", bytes(LIMIT // 4)) for n in range(5)], "it would unpack to"),
        ([("Same", b"1"), ("same", b"2")], "is in it twice"),
        ([("there", b"another")], "is there already and differs"),
    ],
)
def test_an_archive_that_is_not_to_be_trusted_is_refused(
    tmp_path: Path, entries: Entries, message: str
) -> None:
    target = tmp_path / "data"
    target.mkdir()
    (target / "there").write_bytes(b"mine")
    archive = tmp_path / "archive.zip"
    archive.write_bytes(make_archive(entries))
    before = everything(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        unpack(archive, target, LIMIT)
    assert not isinstance(caught.value, DamagedError)
    assert "archive.zip" in str(caught.value)
    assert everything(tmp_path) == before


def test_a_bomb_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    data = make_archive([("bomb", bytes(LIMIT + 1))])
    true, lie = (LIMIT + 1).to_bytes(4, "little"), (5).to_bytes(4, "little")
    assert data.count(true) == 2
    (tmp_path / "archive.zip").write_bytes(data.replace(true, lie))
    with pytest.raises(DamagedError, match="zip archive"):
        unpack(tmp_path / "archive.zip", tmp_path / "data", LIMIT)
    assert everything(tmp_path / "data") == {}


def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path: Path) -> None:
    target, outside = tmp_path / "data", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "npz").symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    for name in ("npz/a", "file"):
        archive = tmp_path / "archive.zip"
        archive.write_bytes(make_archive([(name, b"1")]))
        with pytest.raises(InputError, match="archive.zip"):
            unpack(archive, target, LIMIT)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("length", [0, 10, -30, -1])
def test_a_damaged_archive_is_refused(tmp_path: Path, length: int) -> None:
    whole = make_archive([("a/b", b"1" * 1000), ("c", bytes(range(256)))])
    (tmp_path / "archive.zip").write_bytes(whole[:length])
    with pytest.raises(DamagedError):
        unpack(tmp_path / "archive.zip", tmp_path / "data", LIMIT)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    whole = bytearray(make_archive([("c", bytes(range(256)))]))
    whole[60] ^= 1
    (tmp_path / "archive.zip").write_bytes(whole)
    with pytest.raises(DamagedError):
        unpack(tmp_path / "archive.zip", tmp_path / "data", LIMIT)
    assert everything(tmp_path / "data") == {}


def test_a_name_that_ends_early_is_refused(tmp_path: Path) -> None:
    """zipfile ends it at the NUL: a file became an empty folder, and was missed by nobody."""
    path = tmp_path / "mine.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("npz/a.npz", b"1")
        archive.writestr("npz/X.npz", b"2")
    path.write_bytes(path.read_bytes().replace(b"npz/X.npz", b"npz/\0.npz"))
    with pytest.raises(InputError, match="neither"):
        unpack(path, tmp_path / "out", 1 << 20)


def test_what_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(make_archive([("a/b", b"1"), ("empty/", b""), ("c", b"2")]))
    files = unpack(archive, tmp_path / "data", LIMIT)
    assert everything(tmp_path / "data") == {"a/b": b"1", "c": b"2"}
    first = files[0].stat().st_mtime_ns
    files[1].unlink()
    assert unpack(archive, tmp_path / "data", LIMIT) == files
    assert files[0].stat().st_mtime_ns == first
    assert files[1].read_bytes() == b"2"


def test_names_stay_below_the_target(tmp_path: Path) -> None:
    assert place_below(tmp_path, "a/b.npz", "x") == tmp_path / "a" / "b.npz"
    for name in ("", "..", "a/..", "/a", "a\0b"):
        with pytest.raises(InputError, match="leads out"):
            place_below(tmp_path, name, "x")
