"""Store checksums of files in records or seals, so that damage is noticed when files are read.

A sealed record (solution.system.files) contains a checksum of itself, and may list the checksums of
other files. A file outside of a record gets a *seal*: a sealed record beside it that contains the
file's size and checksum. A checksum reveals damage; it does not prove who wrote a file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_sealed, replace_file, write_sealed
from solution.system.names import leads_out

SUFFIX = ".seal"  # ending of the file that records another file's checksum
SUMS = "sha256"  # key in the seal: sizes and checksums the file may have, from describe_file
NOTHING = "nothing"  # value for a file that did not exist, instead of its size and checksum


def read_record(path: Path, what: str) -> dict[str, Any]:
    """Read a sealed record; raise InputError if the file is missing or damaged. `what`: the thing
    that the record describes, for messages, such as "a bundle"."""
    expected = f"the record of {what}"
    try:
        return read_sealed(path, expected)
    except OSError as error:
        raise InputError(f"{path}: expected {expected}, but: {error.strerror}.") from error


@contextmanager
def replace_sealed(path: Path) -> Iterator[Path]:
    """Replace a file as replace_file does, and write its seal. Before the file is replaced, its
    seal lists the checksums of both the old and the new file. So the file matches its seal even if
    the process is killed in between."""
    seal = find_seal(path)
    with replace_file(path) as temporary:
        yield temporary
        wanted, standing = describe_file(temporary), _find_sound(path)
        write_sealed({SUMS: sorted({wanted, *standing})}, seal)
    if standing - {wanted}:
        write_sealed({SUMS: [wanted]}, seal)


def find_seal(path: Path) -> Path:
    """Return the path of a file's seal."""
    return path.with_name(f"{path.name}{SUFFIX}")


def check_seal(path: Path) -> str:
    """Check a file that replace_sealed wrote; return its size and checksum as describe_file does.
    Raises InputError if the file is missing or damaged, or has no seal."""
    known = read_record(find_seal(path), f"the seal of {path.name}").get(SUMS)
    for described in known if isinstance(known, list) else ():
        if is_as_described(path, described):
            return str(described)
    raise InputError(f"{path}: is not there as it was written. Make it again.")


def check_any_seal(path: Path) -> None:
    """Check the file if it has a seal; files that other programs wrote have none."""
    if find_seal(path).exists():
        check_seal(path)


def _find_sound(path: Path) -> set[str]:
    """Return a set with the size and checksum (SIZE:SHA256) of a file that matches its seal. If
    neither the file nor its seal exists, the set is {NOTHING}; otherwise it is empty."""
    if not path.exists() and not find_seal(path).exists():
        return {NOTHING}
    try:
        return {check_seal(path)}
    except InputError:
        return set()


def describe_file(path: Path) -> str:
    """Return the size and the SHA-256 of a file, as SIZE:SHA256."""
    return f"{path.stat().st_size}:{checksum(path)}"


def is_as_described(path: Path, description: object) -> bool:
    """Return True if the file has the described size and checksum. The description is a result of
    describe_file, or NOTHING if the file must not exist. Only a file of equal size is read."""
    if description == NOTHING:
        return not path.exists()
    size, _, digest = str(description).partition(":")
    return path.is_file() and str(path.stat().st_size) == size and checksum(path) == digest


def list_checksums(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """Return, by relative path, the size and SHA-256 of every file below `folder`. Files whose
    relative path is in `leave_out` and temporary files are skipped."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: describe_file(path)
        for name, path in names.items()
        if name not in leave_out and not path.name.startswith(TEMPORARY)
    }


def check_files(folder: Path, expected: object, record: Path) -> None:
    """Compare the files below `folder` with their `expected` sizes and checksums.

    Args:
        expected: the result of list_checksums, read from the file `record`; it is checked, too.
        record: named in error messages.

    Raises InputError if a file is missing or damaged, is a link, or has a name that leads out of
    the folder.
    """
    if not isinstance(expected, dict):
        raise InputError(f"{record}: expected the checksums of its files, found {expected!r}.")
    for name, description in expected.items():
        path = folder / name
        if leads_out(name):
            raise InputError(f"{record}: names {name!r}, expected files inside its folder.")
        if path.is_symlink():
            raise InputError(f"{path}: expected a file inside its folder, found a link.")
        if not is_as_described(path, description):
            raise InputError(f"{path}: is not there as it was written. Make it again.")
