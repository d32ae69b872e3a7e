"""Who may read a new file says the umask; only regular files are opened; damage is seen."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from solution.system import sealing
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
from tests.made.hostile import put_device, put_folder, put_pipe

EXPECTED = "the record of a test"


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for folder in (taken, taken / "deeper"):
        for write in (replace_file, replace_folder):
            with pytest.raises(InputError, match="its place"), write(folder / "new"):
                pass
        for check in (make_folder, check_writable):
            with pytest.raises(InputError, match="its place"):
                check(folder)
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o022, 0o002])
def test_the_umask_says_who_may_read_what_is_written(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with replace_file(tmp_path / "file") as temporary:
            temporary.write_text("private")
            assert temporary.stat().st_mode & 0o777 & umask == 0
        with replace_folder(tmp_path / "folder") as temporary:
            (temporary / "inner").touch()
    finally:
        os.umask(before)
    for name, most in (("file", 0o666), ("folder", 0o777), ("folder/inner", 0o666)):
        assert (tmp_path / name).stat().st_mode & 0o777 == most & ~umask


def test_a_folder_is_synced_with_all_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert read_everything(tmp_path / "link") == b"content"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        with pytest.raises((InputError, OSError), match="socket"):
            open_regular(tmp_path / "socket")


HOSTILE = {
    "nested": 100_000 * b"[", "nested objects": 100_000 * b'{"a":', "list": b"[1]", "null": b"null",
    "digits": b'{"a": ' + 5000 * b"9" + b"}", "latin-1": b'{"a": "\xe9"}',
    "half a surrogate": b'{"a": "\\ud800"}', "half a surrogate in a key": b'{"\\udfff": 1}',
    "NaN": b'{"a": NaN}', "infinite": b'{"a": -Infinity}', "empty": b"",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_sound_json_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    for read in (read_json, read_sealed):
        with pytest.raises(InputError, match=f"record.json: expected {EXPECTED}"):
            read(path, EXPECTED)


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


class KillError(BaseException):
    """Stands for a kill: nothing after it is done."""


def write(path: Path, content: bytes) -> None:
    with sealing.replace_sealed(path) as temporary:
        temporary.write_bytes(content)


def test_what_was_written_has_a_seal_that_does_not_hold_how_often(tmp_path: Path) -> None:
    for name, contents in (("a", [b"one"]), ("b", [b"zero", b"", b"one"])):
        for content in contents:
            write(tmp_path / name, content)
            sealing.check_seal(tmp_path / name)
    one, other = (sealing.find_seal(tmp_path / name).read_bytes() for name in "ab")
    assert one == other
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.seal", "b", "b.seal"}


@pytest.mark.parametrize("damage", [b"onf", b"", b"one ", None])
def test_damage_is_named(damage: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"one")
    path.unlink() if damage is None else path.write_bytes(damage)
    for check in (sealing.check_seal, sealing.check_any_seal):
        with pytest.raises(InputError, match="a: is not"):
            check(path)
    write(path, b"two")  # and made again
    sealing.check_seal(path)


def test_a_file_of_another_program_has_no_seal(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    sealing.check_any_seal(tmp_path / "a")
    with pytest.raises(InputError, match=r"a\.seal"):
        sealing.check_seal(tmp_path / "a")


@pytest.mark.parametrize("before", [None, b"one"])
@pytest.mark.parametrize("step", range(4))
def test_a_kill_between_file_and_seal_leaves_what_can_be_read(
    before: bytes | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written last, the one or the other, nothing is refused."""
    path = tmp_path / "a"
    if before is not None:
        write(path, before)
    steps = iter(range(step))
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if next(steps, None) is None:
            raise KillError
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    try:
        write(path, b"two")
    except KillError:
        assert step < 3
    monkeypatch.undo()
    sealing.check_any_seal(path)
    found = path.read_bytes() if path.exists() else None
    assert found == (b"two" if step >= 2 else before)
    write(path, b"three")
    sealing.check_seal(path)


def test_damage_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write(path, b"one")
    path.write_bytes(b"onf")
    known, real = [], sealing.write_sealed

    def watch(value: dict[str, Any], to: Path) -> None:
        known.append(len(value[sealing.SUMS]))
        real(value, to)

    monkeypatch.setattr(sealing, "write_sealed", watch)
    write(path, b"two")
    assert known == [1]


def test_a_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """A terabyte that takes no room would take minutes."""
    write(tmp_path / "a", b"one")
    (tmp_path / "b").write_bytes(b"two")
    listed = sealing.list_checksums(tmp_path)
    for name in ("a", "b"):
        with (tmp_path / name).open("ab") as file:
            file.truncate(1 << 40)
    with pytest.raises(InputError, match="a: is not"):
        sealing.check_seal(tmp_path / "a")
    with pytest.raises(InputError, match="not there"):
        sealing.check_files(tmp_path, listed, tmp_path / "record.json")
