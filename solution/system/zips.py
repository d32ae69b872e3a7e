"""What zipfile does not look at in a zip file, what it raises of a damaged one, and equal bytes."""

import io
import stat
import struct
import zipfile
import zlib
from typing import BinaryIO

from solution.system.refusals import FULL

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


def is_of_contents(error: Exception) -> bool:
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
