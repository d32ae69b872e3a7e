"""Who may read a new file says the umask; only regular files are opened; damage is seen."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.system.errors import InputError
from solution.system.files import (
    check_writable,
    checksum,
    make_folder,
    open_regular,
    read_json,
    read_sealed,
    replace_file,
    replace_folder,
    write_sealed,
)
from tests.made.guarded import Guard

EXPECTED = "the record of a test"


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for folder in (taken, taken / "deeper"):
        for write in (replace_file, replace_folder):
            refused = pytest.raises(InputError, match="taken.*: a file is in its place")
            with refused, write(folder / "new"):
                pass
        for check in (make_folder, check_writable):
            with pytest.raises(InputError, match="taken.*: a file is in its place"):
                check(folder)
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o022, 0o002], indirect=True)
def test_the_umask_says_who_may_read_what_is_written(umask: int, tmp_path: Path) -> None:
    with replace_file(tmp_path / "file") as temporary:
        temporary.write_text("private")
        assert temporary.stat().st_mode & 0o777 & umask == 0
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask
    with replace_folder(tmp_path / "folder") as temporary:
        (temporary / "inner").touch()
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "folder" / "inner").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_folder_is_synced_with_all_folders_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = [], os.fsync

    def watch(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    with replace_folder(tmp_path / "folder") as temporary:
        (temporary / "model").mkdir()
        (temporary / "model" / "weights").write_text("1")
    inside = [temporary / "model", temporary / "model" / "weights", temporary]
    assert set(inside) < set(synced)
    assert synced[-1] == tmp_path  # the name itself, last


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def put_folder(path: Path) -> None:
    path.mkdir()


STRANGE = {"pipe": put_pipe, "device": put_device, "folder": put_folder}


@pytest.mark.parametrize("kind", STRANGE)
def test_only_regular_files_are_opened(kind: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "strange"
    STRANGE[kind](path)
    for read in (checksum, read_everything, read_record):
        with pytest.raises(InputError, match=f"strange: expected a file, found a {kind}"):
            guard.call(read, path)


def read_everything(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def read_record(path: Path) -> dict[str, Any]:
    return read_json(path, EXPECTED)


def test_a_socket_is_refused_and_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        with pytest.raises((InputError, OSError), match="socket"):
            open_regular(tmp_path / "socket")


HOSTILE = {
    "nested": 100_000 * b"[",
    "nested objects": 100_000 * b'{"a":',
    "list": b"[1]",
    "null": b"null",
    "digits": b'{"a": ' + 5000 * b"9" + b"}",
    "latin-1": b'{"a": "\xe9"}',
    "half a surrogate": b'{"a": "\\ud800"}',
    "half a surrogate in a key": b'{"\\udfff": 1}',
    "NaN": b'{"a": NaN}',
    "infinite": b'{"a": -Infinity}',
    "empty": b"",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_sound_json_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    for read in (read_json, read_sealed):
        with pytest.raises(InputError, match=f"record.json: expected {EXPECTED}"):
            read(path, EXPECTED)


def test_json_without_end_is_refused(tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "record.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(InputError, match="more than"):
        guard.call(read_record, path)


VALUES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
).filter(lambda value: "seal" not in value)  # fmt: skip


@given(value=VALUES)
@settings(max_examples=50, deadline=None)
def test_a_sealed_record_comes_back(
    value: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "record.json"
    write_sealed(value, path)
    assert read_sealed(path, EXPECTED) == value
    assert json.loads(path.read_text()).items() >= value.items()


def test_no_byte_of_a_sealed_record_may_change(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_sealed({"hops": 1, "name": "x", "files": {"a": [1, 2]}}, path)
    content = path.read_bytes()
    damaged = [content[:cut] for cut in range(len(content))]
    damaged += [content + b"\n", b" " + content, content.replace(b"  ", b" ")]
    damaged += [content.replace(b'"name"', b'"hops": 1, "name"')]
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            damaged.append(bytes(flipped))
    for other in damaged:
        path.write_bytes(other)
        with pytest.raises(InputError, match="record.json: expected"):
            read_sealed(path, EXPECTED)
