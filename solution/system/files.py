"""Write files atomically, so that a kill leaves no partial file, and read them safely.

Files may come from anybody, so only regular files are opened. A sealed record contains a checksum
of itself, so that damage is noticed.
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

TEMPORARY = ".partial-"  # prefix of the names of temporary files and folders
SEAL = "seal"  # key in a sealed record: the checksum of all other entries
MAX_JSON = 64 << 20  # maximum bytes of a JSON file; a usual record has a few thousand
KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; if the block succeeds, it replaces `path` atomically. The file gets
    the permissions of any new file, by the umask."""
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
    """Yield a temporary folder; if the block succeeds, it replaces `folder`. `alone`: the caller
    holds a lock, so a temporary folder of a killed process is removed."""
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
            if path.is_file():  # let others read files that a library wrote for their owner only
                path.chmod(mode & 0o666)
            # flush folders too, because they contain the files' names
            if path.is_file() or path.is_dir():
                _sync(path)
        if folder.exists():
            remove_folder(folder)
        temporary.replace(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents if they do not exist. Raises InputError if a file has that
    path, or if the folder may not be made."""
    with name_refusal(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_place(path: Path) -> None:
    """Raise InputError if `path` is a folder, pipe or device, which no file can replace."""
    if path.exists() and not path.is_file():
        kind = KINDS.get(stat.S_IFMT(path.stat().st_mode), "device")
        raise InputError(f"{path}: is a {kind}, where a file is to be written. Give another name.")


def check_writable(folder: Path) -> None:
    """Raise InputError unless a file can be written in the folder; call it before long work. A
    missing folder is not made: its nearest existing parent is tested."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    temporary = _temporary(there / "test")
    with name_refusal(folder):
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        temporary.unlink()


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(value: dict[str, Any], path: Path) -> None:
    """Write `value` atomically as readable JSON."""
    write_bytes(_render(value).encode(), path)


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """Read a JSON object from a file of any origin. `expected`: what the file should be, for
    messages, such as "the record of a store". Raises InputError if the file is not valid JSON, no
    object, or nested too deeply. Raises FileNotFoundError if the file does not exist."""
    return _parse(_read_text(path, expected), path, expected)


def write_sealed(value: dict[str, Any], path: Path) -> None:
    """Write `value` as write_json does, with a checksum of its entries under the key SEAL."""
    write_json({**value, SEAL: _digest(value)}, path)


def read_sealed(path: Path, expected: str) -> dict[str, Any]:
    """Read a file that write_sealed wrote. Raises InputError if any byte has changed, and otherwise
    what read_json raises."""
    text = _read_text(path, expected)
    value = _parse(text, path, expected)
    value.pop(SEAL, None)
    if text != _render({**value, SEAL: _digest(value)}):
        raise InputError(f"{path}: expected {expected}, but its checksum is wrong: it is damaged.")
    return value


def _read_text(path: Path, expected: str) -> str:
    try:
        return read_bytes(path, expected, MAX_JSON).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected {expected}, but: {error}.") from error


def read_bytes(path: Path, expected: str, most: int) -> bytes:
    """Read the bytes of a file of any origin.

    Args:
        expected: what the file should be, for messages.
        most: the largest size in bytes; a larger file is not read.

    Raises InputError if the file is larger or not a regular file; otherwise what open() raises.
    """
    with open_regular(path, expected, most) as file:
        return file.read(most)


def _parse(text: str, path: Path, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        # reject single surrogates, which cannot be encoded
        json.dumps(value, ensure_ascii=False).encode()
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
    """Open a regular file to read its bytes.

    Args:
        expected: what the file should be, for messages.
        most: the largest size in bytes; None: any.

    Raises InputError if the file is larger than `most`, or is a folder, pipe or device (reading a
    pipe or device may never begin or end); otherwise what open() raises.
    """
    # without O_NONBLOCK, opening a pipe waits for a writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
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
    """Lock the folder for the block; the system releases the lock even if the process is killed.
    `shared`: allow other shared locks at the same time. Raises InputError, with the `advice`, if
    another process has the lock."""
    with holding(folder, shared=shared) as is_mine:
        if not is_mine:
            raise InputError(f"{folder}: another process is at work in it. {advice}")
        yield


@contextmanager
def holding(folder: Path, *, shared: bool = False) -> Iterator[bool]:
    """Try to lock the folder for the block; yield whether it succeeded."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield take_lock(descriptor, shared=shared)
    finally:
        os.close(descriptor)


@contextmanager
def locked_until_free(folder: Path) -> Iterator[None]:
    """Lock the folder for the block; wait until other processes release it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Try to lock an open file or folder; return False if another process has the lock."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not shared:
            raise
        # counts as locked: a read-only mount may not support locks, and needs none
    return True


def checksum(path: Path) -> str:
    """Return the SHA-256 of the file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(folder: Path, inside: Iterable[str] = ()) -> None:
    """Delete temporary files and folders that a killed process left directly in the folder. Other
    subfolders are not searched: they may belong to a running process, or contain the user's files.
    `inside`: patterns of subfolders that are searched as well."""
    for pattern in ("", *inside):
        for path in sorted(folder.glob(f"{pattern}/{TEMPORARY}*".lstrip("/"))):
            remove(path)


def remove(path: Path) -> None:
    """Delete a file, a link (not its target), or a folder with its contents."""
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def remove_with_emptied(path: Path, top: Path) -> None:
    """Delete a path, and the folders between it and `top` that become empty."""
    remove(path)
    with suppress(OSError):  # a folder that is not empty stays
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
