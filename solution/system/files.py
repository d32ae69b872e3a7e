"""How files are written, so that a kill at any moment loses nothing and leaves no half of one.

And how they are read where anybody may have written them: only regular files are opened, and a
sealed record tells whether it is what was written.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.refusals import name_file, name_refusal, remove_folder

TEMPORARY = ".partial-"
SEAL = "seal"  # in a sealed record: the checksum of all the rest
MAX_JSON = 64 << 20  # bytes; a record has a few thousand
KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; when the block succeeds it becomes `path`, atomically.

    Who may read it says the umask, as of any new file.
    """
    check_place(path)
    temporary = _temporary(path)
    make_folder(path.parent)
    with name_refusal(path.parent):
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        with name_file(path, temporary):
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replace_folder(folder: Path, *, alone: bool = False) -> Iterator[Path]:
    """Yield a temporary folder; when the block succeeds it takes the place of `folder`.

    Args:
        alone: the caller keeps others from doing so meanwhile, so what is there already was left
            by one that was killed, and goes.
    """
    temporary = folder.with_name(f"{TEMPORARY}{folder.name}") if alone else _temporary(folder)
    make_folder(folder.parent)
    with name_refusal(folder.parent):
        if alone:
            remove(temporary)
        temporary.mkdir()
    try:
        yield temporary
        mode = temporary.stat().st_mode
        for path in (*temporary.rglob("*"), temporary):
            if path.is_file():  # some libraries write files that only their owner may read
                path.chmod(mode & 0o666)
            if path.is_file() or path.is_dir():  # a folder's own names must last as well
                _sync(path)
        if folder.exists():
            remove_folder(folder)
        temporary.replace(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, if they are not there.

    Raises InputError where a file is in its place, or none may be made.
    """
    with name_refusal(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_place(path: Path) -> None:
    """Raise InputError where something is that a file cannot take the place of."""
    if path.exists() and not path.is_file():
        kind = KINDS.get(stat.S_IFMT(path.stat().st_mode), "device")
        raise InputError(f"{path}: is a {kind}, where a file is to be written. Give another name.")


def check_writable(folder: Path) -> None:
    """Raise InputError where no file could be written in the folder, before what takes long.

    A folder that is not there is not made: the nearest one above it counts.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    temporary = _temporary(there / "test")
    with name_refusal(folder):
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        temporary.unlink()


def write_json(value: dict[str, Any], path: Path) -> None:
    """Write `value` atomically as readable JSON."""
    with replace_file(path) as temporary:
        temporary.write_text(_render(value), encoding="utf-8")


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file that anybody may have written.

    Args:
        expected: what it should be, for messages, such as "the record of a store".

    Raises:
        InputError: the file is not such JSON, or nested too deeply.
        FileNotFoundError: there is none.
    """
    return _parse(_read_text(path, expected), path, expected)


def write_sealed(value: dict[str, Any], path: Path) -> None:
    """Write `value` as write_json does, with a checksum of itself."""
    write_json({**value, SEAL: _digest(value)}, path)


def read_sealed(path: Path, expected: str) -> dict[str, Any]:
    """What write_sealed wrote; raises as read_json does, and where a single byte is another."""
    text = _read_text(path, expected)
    value = _parse(text, path, expected)
    value.pop(SEAL, None)
    if text != _render({**value, SEAL: _digest(value)}):
        raise InputError(f"{path}: expected {expected} as it was written, but it is damaged.")
    return value


def _read_text(path: Path, expected: str) -> str:
    try:
        return read_bytes(path, expected, MAX_JSON).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected {expected}, but: {error}.") from error


def read_bytes(path: Path, expected: str, most: int) -> bytes:
    """What is in a file that anybody may have written.

    Args:
        expected: what it should be, for messages.
        most: how many bytes it may have; of one with more, none are read.

    Raises InputError where it has more, or is no regular file; otherwise what open() raises.
    """
    with open_regular(path, expected, most) as file:
        return file.read(most)


def _parse(text: str, path: Path, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected {expected}, but: {error}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected {expected}, found {type(value).__name__}.")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _render(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(_render(value).encode()).hexdigest()


def open_regular(path: Path, expected: str = "a file", most: int | None = None) -> BufferedReader:
    """Open a file to read its bytes.

    Args:
        expected: what it should be, for messages.
        most: how many bytes it may have; by default any.

    Raises InputError where it has more, or is a folder, or a pipe or device, which may never begin
    or never end; otherwise what open() raises.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a pipe waits for its writer
    found = os.fstat(descriptor)
    kind = stat.S_IFMT(found.st_mode)
    defect = ""
    if kind != stat.S_IFREG:
        defect = f"expected a file, found a {KINDS.get(kind, 'device')}"
    elif most is not None and found.st_size > most:
        defect = f"expected {expected}, found more than {most:,} bytes"
    if defect:
        os.close(descriptor)
        raise InputError(f"{path}: {defect}.")
    return os.fdopen(descriptor, "rb")


@contextmanager
def locked(folder: Path, advice: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the folder itself as a lock; the system gives it back even after a kill.

    Args:
        shared: others may hold it so too, but nobody alone.
    """
    with holding(folder, shared=shared) as is_mine:
        if not is_mine:
            raise InputError(f"{folder}: another process is at work in it. {advice}")
        yield


@contextmanager
def holding(folder: Path, *, shared: bool = False) -> Iterator[bool]:
    """As locked, but say whether it could be had."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield take_lock(descriptor, shared=shared)
    finally:
        os.close(descriptor)


@contextmanager
def locked_until_free(folder: Path) -> Iterator[None]:
    """As locked, but wait for whoever has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder for this process; False where another one has it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not shared:
            raise
        # A mount that is read-only may have no locks, and nobody who could change it.
    return True


def checksum(path: Path) -> str:
    """The SHA-256 of the file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(folder: Path, inside: Iterable[str] = ()) -> None:
    """Delete the temporary files and folders of a process that was killed.

    Elsewhere below the folder may be those of a process that is at work, or files of the user's.

    Args:
        inside: patterns of the folders in it where it wrote as well.
    """
    for place in ("", *inside):
        for path in sorted(folder.glob(f"{place}/{TEMPORARY}*".lstrip("/"))):
            remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; of a link, the link."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def remove_with_emptied(path: Path, top: Path) -> None:
    """Delete it, and the folders below `top` that have nothing else in them."""
    remove(path)
    with suppress(OSError):  # something else is in it
        for folder in path.relative_to(top).parents[:-1]:
            (top / folder).rmdir()


def _temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
