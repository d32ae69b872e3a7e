"""How files are written, so that a kill at any moment loses nothing and leaves no half of one."""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solution.system.errors import InputError

TEMPORARY = ".partial-"


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; when the block succeeds it becomes `path`, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        _sync(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; when the block succeeds it takes the place of `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    try:
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                _sync(path)
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(value: dict[str, Any], path: Path) -> None:
    """Write `value` atomically as readable JSON."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file; InputError where it is not the record of `what`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: expected the record of {what}, but: {error.strerror}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected the record of {what}, but: {error}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected the record of {what}, found {str(value)[:40]!r}.")
    return value


@contextmanager
def locked(folder: Path, advice: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the folder itself as a lock; the system gives it back even after a kill.

    Args:
        shared: others may hold it so too, but nobody alone.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not take_lock(descriptor, shared=shared):
            raise InputError(f"{folder}: another process is at work in it. {advice}")
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files and folders of a process that was killed."""
    for path in sorted(folder.rglob(f"{TEMPORARY}*")):
        remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; of a link, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
