"""A temporary folder for a command and all that it starts, of which nothing is left.

Libraries leave files in the temporary folder (torch_geometric a module each time that a net is
imported, torch an empty folder), and a killed command cannot clean up. So a command has a folder to
itself, which is where everything below it finds the temporary folder, and which it holds locked. A
folder that nobody holds is one of a command that is dead: the next command removes it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "fastslow-run-"
VARIABLE = "TMPDIR"  # where libraries and processes look for the temporary folder
BASE = "FASTSLOW_TEMPORARY"  # what it was before


def find_base() -> Path:
    """Return the temporary folder that commands share, such as for locks between them."""
    base = Path(os.environ.get(BASE, ""))  # a worker on another machine may have no such folder
    return base if os.environ.get(BASE) and base.is_dir() else Path(tempfile.gettempdir())


@contextmanager
def scratch_folder() -> Iterator[None]:
    """Make the temporary folder one of this command's, which is removed after the block.

    Where none can be made, the temporary folder stays as it is.
    """
    try:
        base = find_base()
        sweep(base)
        folder, descriptor = _make(base)
    except OSError:  # no space, no permission: what needs a file says so itself
        yield
        return
    before = {name: os.environ.get(name) for name in (VARIABLE, BASE)}
    cached, tempfile.tempdir = tempfile.tempdir, str(folder)
    os.environ.update({VARIABLE: str(folder), BASE: str(base)})
    try:
        yield
    finally:
        tempfile.tempdir = cached
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep(base: Path) -> None:
    """Remove the folders of commands that were killed: those that no process holds locked."""
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or another command removes it
            descriptor = _open(folder)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and _lock(descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _make(base: Path) -> tuple[Path, int]:
    """Return a new folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        descriptor = _open(folder)
        # Before it was locked, another command may have taken it for a dead one's.
        if _lock(descriptor) and folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
