"""Work on folders in a bucket (s3://, gs:// or any other scheme of fsspec) through local copies.

Every command works on a copy on this machine, a *mirror*. The mirror is updated before the work,
and changed files are uploaded afterwards. NAME.mirror.json beside the mirror records the address
and, for each file, the version on both sides when they were last equal. Credentials come from the
environment (AWS_*, GOOGLE_APPLICATION_CREDENTIALS), never from an address.
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
    """Yield the folder, or the updated mirror of an address, whose changes are uploaded at the end.

    Args:
        sends: upload changes; otherwise the bucket is only read.
        alone: lock the mirror against other processes of this machine.

    Raises InputError if an address that is only read cannot be reached, or has no files.
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
            # subclasses, such as MirrorError, name the bucket already
            if type(error) is not InputError:
                raise
            raise InputError(str(error).replace(str(mirror.folder), mirror.url)) from error
        if sends:
            mirror.push()


def folder_of(given: str) -> Path:
    """Return the folder itself, or the folder of the mirror of an address."""
    return Mirror.of(given).folder if is_address(given) else Path(given)


def send_back(folder: Path) -> None:
    """Upload changed files if the folder is a mirror."""
    mirror = Mirror.find(folder)
    if mirror is not None:
        mirror.push()
