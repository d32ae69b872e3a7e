"""Turn OSErrors about temporary files into errors that name the path which the user gave."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solution.system.errors import InputError

# errno values that mean: this folder cannot be used, but another folder may be
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
# errno values of a full disk, file size limit or quota; such errors often do not name the file
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def name_refusal(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block into an InputError if it means that `folder` cannot be written
    to. The InputError names `folder`; the OSError would name a temporary file."""
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
    """If the disk becomes full in the block, make the OSError name `path`, not `temporary`."""
    try:
        yield
    except OSError as error:
        raise_full(error, path)
        if error.errno in FULL and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def raise_full(error: Exception, path: Path) -> None:
    """Raise an OSError that names `path` if `error` is a library's report of a full disk. Such an
    error has the system's error number only in its text, as in `(os error 28)`."""
    said = re.search(r"\(os error (\d+)\)", str(error))
    if said and int(said[1]) in FULL:
        number = int(said[1])
        raise OSError(number, os.strerror(number), str(path)) from error


@contextmanager
def name_full_disk(folder: Path) -> Iterator[None]:
    """Raise InputError that names the folder if the disk becomes full in the block."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise InputError(
            f"{folder}: {error.strerror}. Make room, or raise the limit, and give the same command "
            "again. What is finished is kept."
        ) from error


def remove_folder(folder: Path) -> None:
    """Delete a folder with its contents; raise InputError that names it if this is not allowed. The
    InputError replaces the system's error, which names a file in the folder without its path."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if error.errno not in REFUSALS or error.errno == errno.ENOENT:
            raise
        raise InputError(
            f"{folder}: may not be removed ({Path(error.filename or folder).name}: "
            f"{error.strerror}). Choose another folder, or make it yours."
        ) from error
