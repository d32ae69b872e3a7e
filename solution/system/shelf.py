"""Keep results that take long to compute in files, for other processes and later runs.

A result is a dataclass of arrays, numbers and flags. Its file is named by a hash of the inputs and
of the code that computes it. Deleting the folder is safe at any time.
"""

import dataclasses
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from solution.system.errors import InputError
from solution.system.files import make_folder, remove, replace_file
from solution.system.names import cache_of_variable

T = TypeVar("T")

VARIABLE = "FASTSLOW_TABLES"
FOLDER = "state-tables"  # subfolder of the folder in VARIABLE; any file in it may be deleted
MOST_BYTES = 20 << 30  # size limit; beyond it, the least recently used results are deleted
LEFT_FREE = 10 << 30  # a result is not stored if fewer bytes than this would stay free on the disk


@dataclasses.dataclass(frozen=True)
class Shelf:
    folder: Path
    version: str  # identifies the code that computes the results


_OPEN: ContextVar[Shelf | None] = ContextVar("shelf", default=None)


@contextmanager
def keeping(version: str) -> Iterator[None]:
    """Let `recall` store results in the block. `version` identifies the code that computes them. No
    result is stored without a home folder, unless VARIABLE is set in the environment. Raises
    InputError if VARIABLE is set to the address of a bucket."""
    try:
        shelf = Shelf(cache_of_variable(VARIABLE, "tables") / FOLDER, version)
    except RuntimeError:  # there is no home folder
        shelf = None
    token = _OPEN.set(shelf)
    try:
        yield
    finally:
        _OPEN.reset(token)


def is_keeping() -> bool:
    """Return whether `recall` stores results now: in a `keeping` block, on a disk with room."""
    shelf = _OPEN.get()
    if shelf is None:
        return False
    with suppress(OSError, InputError):
        make_folder(shelf.folder)
        return shutil.disk_usage(shelf.folder).free >= LEFT_FREE
    return False


def recall(kind: type[T], make: Callable[[], T], parts: Iterable[np.ndarray | str]) -> T:
    """Return the result of `make`, an instance of the dataclass `kind`. In a `keeping` block, read
    it from its file or, without an intact one, compute it, and store it if the disk has room.
    Outside of such blocks, compute it.

    Args:
        parts: everything on which the result depends, except the code.
    """
    shelf = _OPEN.get()
    if shelf is None:
        return make()
    path = shelf.folder / f"{_hash([shelf.version, kind.__name__, *parts])}.npz"
    found = _read(kind, path)
    if found is not None:
        return found
    result = make()
    with suppress(OSError, InputError):  # a full or read-only disk: it is computed again next time
        _write(result, path)
    return result


def _hash(parts: Iterable[np.ndarray | str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(part)
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _read(kind: type[T], path: Path) -> T | None:
    """Return the stored result; None if there is none, or it is damaged."""
    with suppress(OSError):  # update the time of last use; a read-only folder does not allow it
        os.utime(path)
    try:
        values: dict[str, Any] = {}
        with np.load(path, allow_pickle=False) as arrays:
            for field in dataclasses.fields(kind):  # type: ignore[arg-type]
                array = arrays[field.name]
                values[field.name] = array if array.shape else array.item()
        return kind(**values)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None


def _write(result: Any, path: Path) -> None:
    arrays = {name: np.asarray(value) for name, value in vars(result).items()}
    size = sum(array.nbytes for array in arrays.values())
    make_folder(path.parent)
    if shutil.disk_usage(path.parent).free < size + LEFT_FREE:
        return
    _make_room(path.parent, MOST_BYTES - size)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _make_room(folder: Path, most: int) -> None:
    """Delete the least recently used results until the folder has at most `most` bytes."""
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process has deleted it
            entries.append((path.stat().st_mtime, path.stat().st_size, path))
    left = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if left <= most:
            return
        left -= size
        with suppress(OSError):
            remove(path)
