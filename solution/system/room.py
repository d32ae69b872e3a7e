"""A disk on which there is no room: how it is told from other failures, and words for it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solution.system.errors import InputError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the system names no file then


@contextmanager
def name_full_disk(folder: Path) -> Iterator[None]:
    """Raise InputError with the folder where there is no room for what is written in it."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise InputError(
            f"{folder}: {error.strerror}. Make room, or raise the limit, and give the same command "
            "again."
        ) from error
