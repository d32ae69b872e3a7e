"""Records that say what was written, so that damage is found and never taken over.

A sealed record (solution.system.files) has the checksum of its own contents; beside what it records
it may list the checksums of other files. A seal finds damage. It does not prove who wrote a file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_sealed, replace_file, write_sealed
from solution.system.names import leads_out

SUFFIX = ".seal"  # of the record beside a file that is sealed alone
SUMS = "sha256"  # in it: what the file may be
NOTHING = "nothing"  # one of these: there was none before


def read_record(path: Path, what: str) -> dict[str, Any]:
    """The sealed record of `what`; InputError where it is not what was written, or not there."""
    expected = f"the record of {what}"
    try:
        return read_sealed(path, expected)
    except OSError as error:
        raise InputError(f"{path}: expected {expected}, but: {error.strerror}.") from error


@contextmanager
def replace_sealed(path: Path) -> Iterator[Path]:
    """As replace_file, and beside `path` stands its seal, a record with its size and checksum.

    The seal is written first and says what stands there and what is to come, so that a kill between
    the two leaves a file that its seal knows.
    """
    seal = find_seal(path)
    with replace_file(path) as temporary:
        yield temporary
        wanted, standing = describe_file(temporary), _find_sound(path)
        write_sealed({SUMS: sorted({wanted, *standing})}, seal)
    if standing - {wanted}:
        write_sealed({SUMS: [wanted]}, seal)


def find_seal(path: Path) -> Path:
    """Where the seal of a file stands."""
    return path.with_name(f"{path.name}{SUFFIX}")


def check_seal(path: Path) -> str:
    """What describe_file says of a file that replace_sealed wrote.

    Raises InputError where it is not what was written, or has no seal.
    """
    known = read_record(find_seal(path), f"the seal of {path.name}").get(SUMS)
    for described in known if isinstance(known, list) else ():
        if is_as_described(path, described):
            return str(described)
    raise InputError(f"{path}: is not there as it was written. Make it again.")


def check_any_seal(path: Path) -> None:
    """As check_seal where the file has a seal; one that another program wrote has none."""
    if find_seal(path).exists():
        check_seal(path)


def _find_sound(path: Path) -> set[str]:
    """What is said of what stands there, if it is what was written."""
    if not path.exists() and not find_seal(path).exists():
        return {NOTHING}
    try:
        return {check_seal(path)}
    except InputError:
        return set()


def describe_file(path: Path) -> str:
    """The size of a file and its SHA-256, as SIZE:SHA256."""
    return f"{path.stat().st_size}:{checksum(path)}"


def is_as_described(path: Path, description: object) -> bool:
    """Whether the file has the size, and only then is it read, and the checksum."""
    if description == NOTHING:
        return not path.exists()
    size, _, digest = str(description).partition(":")
    return path.is_file() and str(path.stat().st_size) == size and checksum(path) == digest


def list_checksums(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """The size and SHA-256 of every file below `folder`, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: describe_file(path)
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
    for name, description in expected.items():
        path = folder / name
        if leads_out(name):
            raise InputError(f"{record}: names {name!r}, expected files inside its folder.")
        if path.is_symlink():
            raise InputError(f"{path}: expected a file inside its folder, found a link.")
        if not is_as_described(path, description):
            raise InputError(f"{path}: is not there as it was written. Make it again.")
