"""Refusals of the system, said of what was meant: many name a temporary file, or none at all."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solution.system.errors import InputError

# Of a folder that can hold no file of ours; another one may.
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # writing raises them, and names no file


@contextmanager
def name_refusal(folder: Path) -> Iterator[None]:
    """Name the folder that the user gave, not the file that was tried in it."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"{folder}: a file is in its place, or above it, where files are to be written. Choose "
            "another folder, or move the file away."
        ) from error
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise InputError(
            f"{folder}: may not be written ({error.strerror}). Choose another folder, or make it "
            "yours."
        ) from error


@contextmanager
def name_file(path: Path, temporary: Path) -> Iterator[None]:
    """Let an error of a full disk name the file that is written, and not what stands for it."""
    try:
        yield
    except OSError as error:
        raise_full(error, path)
        if error.errno in FULL and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def raise_full(error: Exception, path: Path) -> None:
    """Raise what the system says of a full disk where a library has its number in words only."""
    said = re.search(r"\(os error (\d+)\)", str(error))
    if said and int(said[1]) in FULL:
        number = int(said[1])
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def name_full_disk(folder: Path) -> Iterator[None]:
    """Raise InputError with the folder where there is no room for what is written in it."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise InputError(
            f"{folder}: {error.strerror}. Make room, or raise the limit, and give the same command "
            "again."
        ) from error


def remove_folder(folder: Path) -> None:
    """Delete a folder with all that is in it; InputError, which names it, where that is refused.

    What the system names is the last part of a name somewhere in it.
    """
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if error.errno not in REFUSALS or error.errno == errno.ENOENT:
            raise
        raise InputError(
            f"{folder}: may not be removed ({Path(error.filename or folder).name}: "
            f"{error.strerror}). Choose another folder, or make it yours."
        ) from error
