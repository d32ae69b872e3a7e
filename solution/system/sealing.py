"""Records that say what was written, so that damage is found and never taken over.

A sealed record (solution.system.files) has the checksum of its own contents; beside what it records
it may list the checksums of other files. A seal finds damage. It does not prove who wrote a file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_sealed


def read_record(path: Path, what: str) -> dict[str, Any]:
    """The sealed record of `what`; InputError where it is not what was written, or not there."""
    expected = f"the record of {what}"
    try:
        return read_sealed(path, expected)
    except OSError as error:
        raise InputError(f"{path}: expected {expected}, but: {error.strerror}.") from error


def list_checksums(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """The SHA-256 of every file below `folder`, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: checksum(path)
        for name, path in names.items()
        if name not in leave_out and not path.name.startswith(TEMPORARY)
    }


def check_files(folder: Path, expected: object, record: Path) -> None:
    """Compare the files below `folder` with the checksums of its `record`.

    Names that would lead out of the folder, and links, are refused.

    Raises InputError where one is missing or is not what was written.
    """
    if not isinstance(expected, dict):
        raise InputError(f"{record}: expected the checksums of its files, found {expected!r}.")
    for name, digest in expected.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute() or path.is_symlink():
            raise InputError(f"{record}: names {name!r}, expected files inside its folder.")
        if not path.is_file() or checksum(path) != digest:
            raise InputError(f"{path}: is not there as it was written. Make it again.")
