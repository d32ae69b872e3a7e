"""Zip files from anywhere: what zipfile does not look at, what it raises of a damaged one.

Also how equal files give equal zip files.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from solution.system.errors import InputError
from solution.system.files import open_regular
from solution.system.names import leads_out
from solution.system.refusals import FULL, name_full_disk

END = struct.Struct("<4s4H2LH")  # signature, disks, members of this disk and of all, ...
LOCATOR_SIGNATURE = b"PK\6\7"  # of the record of an archive with more than fits into two bytes
END_SIGNATURE, MAX_COMMENT = b"PK\5\6", 1 << 16
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip knows
ZIP64 = 0xFFFF  # stands for a number that is elsewhere
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)


@contextmanager
def open_untrusted(path: Path, target: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file from anywhere, to unpack it below the folder `target`.

    Raises InputError where a member is refused or the disk of the folder is full, and BadZipFile
    for all that a damaged file provokes, be it while it is opened or unpacked.
    """
    try:
        with (
            name_full_disk(target),
            open_regular(path) as file,
            zipfile.ZipFile(file) as archive,
        ):
            check_directory(archive, file)
            for member in archive.infolist():
                refuse_member(member, path)
            yield archive
    except (OSError, *BROKEN) as error:
        if not _is_of_contents(error):
            raise
        raise zipfile.BadZipFile(str(error)) from error


def refuse_member(member: zipfile.ZipInfo, path: Path) -> None:
    """Raise InputError where it leads out of a folder, or is no plain file or folder."""
    name = member.filename
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InputError(f"{path}: refused, {name!r} is a link or another special file.")
    # zipfile ends a name at its first NUL, which makes a folder of "npz/\0.npz".
    if "\0" in member.orig_filename or (member.is_dir() and member.file_size):
        raise InputError(
            f"{path}: refused, {member.orig_filename!r} is neither a file's name nor a folder's."
        )
    if leads_out(name):
        raise InputError(
            f"{path}: refused, the name {name!r} leads out of the folder that it is unpacked into."
        )
    if member.flag_bits & 1:
        raise InputError(f"{path}: refused, {name!r} is encrypted.")


def check_directory(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Raise BadZipFile where the directory lists fewer members than it says that it has.

    A wrong length in it may hide the members behind it; zipfile does not count.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - END.size - MAX_COMMENT))
    tail = file.read()
    *_, count = END.unpack_from(tail, tail.rindex(END_SIGNATURE))[:5]
    found = len(archive.infolist())
    if count == ZIP64 and LOCATOR_SIGNATURE in tail:  # it stands in a record of its own
        return
    if count != found:
        raise zipfile.BadZipFile(f"its directory has {found} members, expected {count}")


def _is_of_contents(error: Exception) -> bool:
    """Whether damage is the reason, also where it leads before the beginning of the file.

    The system's own errors name the file, such as no permission, or are of a disk without room.
    """
    if not isinstance(error, OSError):
        return True
    return error.filename is None and error.errno not in FULL


def describe_member(name: str) -> zipfile.ZipInfo:
    """A file that is stored as it is, with no time of writing: equal files give equal archives."""
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # Unix, wherever it is written
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info
