"""Folders that lie in a bucket (s3://, gs:// or whatever fsspec knows), and their copies here.

Everything works on a copy on this machine, a *mirror*: it is brought up to date before, and what
has changed is sent back. Beside the mirror stands NAME.mirror.json with the address and, file by
file, what stood on both sides when they were last equal. Who may read a bucket says the environment
(AWS_*, GOOGLE_APPLICATION_CREDENTIALS), never an address.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from solution.system.addresses import is_address
from solution.system.errors import InputError
from solution.system.mirrors import Mirror


@contextmanager
def on_this_machine(
    given: str | Path, *, sends: bool = True, alone: bool = False
) -> Iterator[Path]:
    """The folder itself; of an address its mirror, whose changes are sent back at the end.

    Args:
        sends: whether anything is; what is only read stays as it is there.
        alone: keep other processes of this machine out of the mirror meanwhile.

    Raises InputError where an address that is only read cannot be, or has nothing.
    """
    if not is_address(str(given)):
        yield Path(given)
        return
    mirror = Mirror.of(str(given))
    with mirror.kept() if alone else nullcontext():
        mirror.pull(must_exist=not sends)
        try:
            yield mirror.folder
        except BaseException as error:
            if sends:
                with suppress(InputError):  # the first error is the one to show
                    mirror.push()
            if type(error) is not InputError:  # or one of the mirror itself
                raise
            raise InputError(str(error).replace(str(mirror.folder), mirror.url)) from error
        if sends:
            mirror.push()


def folder_of(given: str) -> Path:
    """The folder itself, or where the mirror of an address lies."""
    return Mirror.of(given).folder if is_address(given) else Path(given)


def send_back(folder: Path) -> None:
    """Send what has changed, if the folder is a mirror."""
    mirror = Mirror.find(folder)
    if mirror is not None:
        mirror.push()
