"""Keep the SQLite file of a search: work on a copy, which replaces the file after every batch.

A batch is a set of trials that are scored in parallel. The file's checksum is written together with
it. If SQLite worked on the file itself, the file would change without its checksum.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from optuna.storages import RDBStorage
from sqlalchemy.pool import NullPool

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, remove_leftovers
from solution.system.sealing import check_seal, find_seal, replace_sealed

STUDY = "study.db"
PRIMARY = 0xFF  # mask: the low byte of an SQLite code is the kind of error, the rest are details


@contextmanager
def working_copy(folder: Path) -> Iterator[Path]:
    """Yield the path of a copy of the study in `folder`; there is no file yet for a new study.
    Raises InputError if the study is damaged or the disk fails, and OSError that names the study if
    the disk is full."""
    path, copy = folder / STUDY, folder / f"{TEMPORARY}{STUDY}"
    if find_seal(path).exists() or path.exists():
        try:
            check_seal(path)
        except InputError as error:
            raise InputError(f"{error} Delete {folder}, or choose another one.") from error
        shutil.copyfile(path, copy)
    try:
        yield copy
    except Exception as error:
        code = _find_code(error) & PRIMARY
        if code == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        if code == sqlite3.SQLITE_IOERR:  # a system error; SQLite does not say which
            raise InputError(
                f"{path}: cannot be written (disk I/O error: full, over a quota or limit, or "
                "unreachable). Make room, or choose another folder."
            ) from error
        raise
    finally:
        remove_leftovers(folder)


def keep(copy: Path, folder: Path) -> None:
    """Replace the study in `folder` with the copy, and write its checksum."""
    with replace_sealed(folder / STUDY) as temporary:
        shutil.copyfile(copy, temporary)


def open_storage(path: Path) -> RDBStorage:
    """Return Optuna's storage in a SQLite file. sqlite3 gets the path itself, because in a URL the
    characters `?` and `%` have a meaning."""
    connect = partial(sqlite3.connect, path.resolve())
    return RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": NullPool})


def _find_code(error: BaseException | None) -> int:
    """Return the SQLite error code among the causes of an error; 0 if there is none."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            # errors that Python's sqlite3 module raises itself have no code of SQLite
            return getattr(error, "sqlite_errorcode", 0)
        error = error.__cause__
    return 0
