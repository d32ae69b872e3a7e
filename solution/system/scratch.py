"""Give each command a temporary folder, which is removed when the command ends.

Libraries leave files in the temporary folder (torch_geometric a module each time that a net is
imported, torch an empty folder), and a killed command cannot clean up. So each command makes a
folder, locks it, and sets it as the temporary folder for itself and its child processes. A folder
without a lock belongs to a dead process, and the next command that makes a folder removes it.

Objects that keep files longer than a function's call have a ScratchFolder each. If no command
runs, as in a notebook, a ScratchFolder lies in the usual temporary folder, and is removed in the
same way.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path

from solution.system.files import take_lock

PREFIX = "fastslow-run-"
# prefixes of the names of folders that libraries remove at exit
KEPT = ("matplotlib-", "pymp-")
AFTER_OTHERS = -200  # exit priority, highest first; multiprocessing removes its folder with -100
VARIABLE = "TMPDIR"  # variable with the temporary folder, read by libraries and child processes
BASE = "FASTSLOW_TEMPORARY"  # variable with the temporary folder before a command made its own


def find_base() -> Path:
    """Return the temporary folder that all commands share, for example for locks between them."""
    base = Path(os.environ.get(BASE, ""))  # may not exist: a worker may run on another machine
    return base if os.environ.get(BASE) and base.is_dir() else Path(tempfile.gettempdir())


@contextmanager
def scratch_folder() -> Iterator[None]:
    """Use a new temporary folder inside the block, and remove it afterwards.

    If it cannot be made, the usual temporary folder is used. multiprocessing keeps a folder inside
    the new one until the process exits, and so does matplotlib if it may not write into the home
    folder. Both complain at exit if their folder is gone. So if either folder exists, the new
    folder is removed only at exit, after them.
    """
    try:
        base = find_base()
        sweep(base)
        folder, descriptor = _make(base)
    except OSError:  # no space or no permission: code that needs a file will report it
        yield
        return
    remove = Finalize(None, _remove, (folder, descriptor), exitpriority=AFTER_OTHERS)
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
        if not any(entry.name.startswith(KEPT) for entry in folder.glob("*")):
            remove()


class ScratchFolder:
    """A temporary folder that only its owner may read; removed with this object or at exit. If the
    process is killed, the next ScratchFolder or command of this user removes it."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        sweep(base)
        self.path, descriptor = _make(base)
        self.remove = weakref.finalize(self, _remove, self.path, descriptor)


def sweep(base: Path) -> None:
    """Remove this user's folders in `base` that no process has locked: their process was killed."""
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's folder, or another command is removing it
            descriptor = _open(folder)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and take_lock(descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _make(base: Path) -> tuple[Path, int]:
    """Return a new folder and the file descriptor that holds the folder's lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        try:
            descriptor = _open(folder)
        except FileNotFoundError:
            continue
        try:
            is_locked = take_lock(descriptor)
        except OSError:  # this file system has no locks, so `sweep` will remove nothing
            is_locked = True
        # Before it was locked, another process could have removed the folder.
        if is_locked and folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _remove(folder: Path, descriptor: int) -> None:
    """Remove the folder and give up its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
