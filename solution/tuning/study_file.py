"""The SQLite file of a search: a copy of it is worked on, and takes its place after each trial.

It is sealed then: a file in the middle of a change has no checksum.
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
PRIMARY = 0xFF  # of a code of SQLite; the rest says more of the same


@contextmanager
def working_copy(folder: Path) -> Iterator[Path]:
    """A copy of the study that was written in `folder`, or the place of a new one.

    Raises:
        InputError: the study is damaged, or its disk fails.
        OSError: there is no room for the copy; it names the study.
    """
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
        if code == sqlite3.SQLITE_IOERR:  # it does not say which error of the system it was
            raise InputError(
                f"{path}: cannot be written (disk I/O error: full, over a quota or limit, or "
                "unreachable). Make room, or choose another place."
            ) from error
        raise
    finally:
        remove_leftovers(folder)


def keep(copy: Path, folder: Path) -> None:
    """Let the copy take the place of the study in `folder`."""
    with replace_sealed(folder / STUDY) as temporary:
        shutil.copyfile(copy, temporary)


def open_storage(path: Path) -> RDBStorage:
    """The studies in a file.

    It is opened here by its path: of an address `?`, `%`, `{` and `}` would be read as no part.
    """
    connect = partial(sqlite3.connect, path.resolve())
    return RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": NullPool})


def _find_code(error: BaseException | None) -> int:
    """What SQLite says went wrong, of which its libraries make errors of their own; else 0."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", 0)  # those of the module itself have none
        error = error.__cause__
    return 0
