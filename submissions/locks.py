"""Lock files that the system releases when their holder ends, even if it is killed."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solution.system.errors import InputError
from solution.system.files import make_folder, take_lock
from solution.system.progress import console
from solution.system.refusals import name_full_disk, name_refusal

BETWEEN_TRIES = 0.05  # seconds between two tries to take a lock


class LockedError(InputError):
    """Another process holds the lock."""


@contextmanager
def wait_for_lock(path: Path, seconds: float, what: str) -> Iterator[int]:
    """Hold the lock file at `path`; yield its descriptor.

    A child process that inherits the descriptor holds the lock as well: if this process is killed,
    the lock lasts until the child has ended, too.

    Args:
        seconds: how long to wait for another holder, then LockedError is raised.
        what: the other holder's activity, for the message.
    """
    make_folder(path.parent)
    with name_refusal(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not take_lock(descriptor):
            with console.status(f"Another process {what}, waiting for it"):
                _wait(descriptor, path, seconds, what)
        with name_full_disk(path.parent):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not take_lock(descriptor):
        if time.monotonic() > deadline:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LockedError(
                f"{path}: another process {what} (process {holder}, or a child of it). It did "
                f"not end within {seconds:g} seconds. Wait for it or end it, then try again."
            )
        time.sleep(BETWEEN_TRIES)
