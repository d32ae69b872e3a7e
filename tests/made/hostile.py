"""What a stranger may put in the place of a file, and who may do less than the superuser."""

import os
from pathlib import Path

NOBODY = 65534
# Reads everything, for the interpreter may lie where only root can; writes nothing of others.
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
)  # fmt: skip


class Bomb:
    """An object that creates a file where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.trace,)


def put_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def put_device(path: Path) -> None:
    """A device that never ends."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def put_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
