"""Keep results that take long to compute in files, for other processes and later runs.

A result is a dataclass of arrays, numbers and flags. Its arrays are memory-mapped when it is found
again, so that they take no memory that other files may need. Results are found by a hash of what
they were computed from, and of the code. Deleting the folder is safe at any time.
"""

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from solution.system.errors import InputError
from solution.system.files import remove, replace_folder
from solution.system.names import cache_of_variable

T = TypeVar("T")

VARIABLE = "FASTSLOW_TABLES"
MOST_BYTES = 20 << 30  # size limit of the folder; beyond it the results not used longest go
LEFT_FREE = 10 << 30  # nothing is kept if less than this would be free on the disk
_VERSION: ContextVar[str | None] = ContextVar("version", default=None)


@contextmanager
def keeping(version: str) -> Iterator[None]:
    """Let `recall` keep results in the block. `version`: names the code that computes them."""
    token = _VERSION.set(version)
    try:
        yield
    finally:
        _VERSION.reset(token)


def recall(kind: type[T], make: Callable[[], T], parts: Iterable[np.ndarray | str]) -> T:
    """Return the result of `make`, an instance of the dataclass `kind`: from a file if it was kept,
    else computed, and kept if a block `keeping` is entered and the disk has room.

    Args:
        parts: everything that the result depends on but the code.
    """
    version = _VERSION.get()
    if version is None:
        return make()
    shelf = cache_of_variable(VARIABLE, "tables")
    folder = shelf / _hash([version, kind.__name__, *parts])
    found = _read(kind, folder)
    if found is not None:
        return found
    result = make()
    with suppress(OSError, InputError):  # a full or read-only disk: it is computed again next time
        _write(result, shelf, folder)
    return result


def _hash(parts: Iterable[np.ndarray | str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(part)
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _read(kind: type[T], folder: Path) -> T | None:
    """Return the kept result; None if there is none, or a part of it is missing or damaged."""
    try:
        os.utime(folder)  # the time of last use
        values: dict[str, Any] = {}
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            # "c": changes stay in memory; torch warns of arrays that cannot be written
            array = np.load(folder / f"{field.name}.npy", mmap_mode="c", allow_pickle=False)
            values[field.name] = np.asarray(array) if array.shape else array.item()
        return kind(**values)
    except (OSError, ValueError, EOFError):
        return None


def _write(result: Any, shelf: Path, folder: Path) -> None:
    arrays = {name: np.asarray(value) for name, value in vars(result).items()}
    size = sum(array.nbytes for array in arrays.values())
    shelf.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(shelf).free < size + LEFT_FREE:
        return
    _make_room(shelf, MOST_BYTES - size)
    with replace_folder(folder) as temporary:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)


def _make_room(shelf: Path, most: int) -> None:
    """Delete the results that were not used longest until the folder has at most `most` bytes."""
    entries = []
    for folder in shelf.iterdir():
        with suppress(OSError):  # another process has deleted it
            size = sum(file.stat().st_size for file in folder.iterdir())
            entries.append((folder.stat().st_mtime, size, folder))
    left = sum(size for _, size, _ in entries)
    for _, size, folder in sorted(entries):
        if left <= most:
            return
        left -= size
        with suppress(OSError):
            remove(folder)
