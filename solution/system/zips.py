"""Open zip files of any origin safely, and write equal zip files for equal files.

This covers checks that zipfile does not make, and the many exceptions it raises for damaged files.
Folders travel between machines as zip files in memory.
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
from solution.system.files import open_regular, replace_folder, write_bytes
from solution.system.names import leads_out, place_below
from solution.system.refusals import FULL, name_full_disk

# end record: signature, disk numbers, members on this disk and in all, size and offset, comment
END = struct.Struct("<4s4H2LH")
# signature of the ZIP64 locator, a record of zip files whose counts exceed two bytes
LOCATOR_SIGNATURE = b"PK\6\7"
END_SIGNATURE, MAX_COMMENT = b"PK\5\6", 1 << 16
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that the zip format can store
ZIP64 = 0xFFFF  # count in the end record that says: the real count is in the ZIP64 record
BROKEN = (  # exceptions that zipfile and the libraries it uses raise for damaged archives
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
    """Open a zip file of any origin, to unpack it below the folder `target`. Raises InputError if
    `refuse_member` rejects a member or the disk becomes full, and BadZipFile for every error that a
    damaged file causes, when it is opened or inside the block."""
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
    """Raise InputError if a member must not be unpacked. Such a member leads out of the folder, is
    encrypted, or is neither a regular file nor a folder."""
    name = member.filename
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InputError(f"{path}: refused, {name!r} is a link or another special file.")
    # zipfile cuts a name at its first NUL, so "npz/\0.npz" would become a folder.
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
    """Raise BadZipFile unless the directory lists as many members as the end record counts. A wrong
    length in the directory may hide members, and zipfile does not compare the counts."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - END.size - MAX_COMMENT))
    tail = file.read()
    *_, count = END.unpack_from(tail, tail.rindex(END_SIGNATURE))[:5]
    found = len(archive.infolist())
    if count == ZIP64 and LOCATOR_SIGNATURE in tail:  # the ZIP64 record has the count
        return
    if count != found:
        raise zipfile.BadZipFile(f"its directory has {found} members, expected {count}")


def _is_of_contents(error: Exception) -> bool:
    """Return True if a damaged archive caused the error. In a damaged archive zipfile may seek to a
    negative position, which is an OSError. All other OSErrors name a file (such as no permission)
    or come from a full disk."""
    if not isinstance(error, OSError):
        return True
    return error.filename is None and error.errno not in FULL


def describe_member(name: str) -> zipfile.ZipInfo:
    """Return the header of an uncompressed member, without the time at which it is written."""
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # Unix, also if this system is another
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info


def pack_folder(folder: Path) -> bytes:
    """Return an archive of all files below the folder; equal files give equal bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            archive.writestr(describe_member(name), path.read_bytes())
    return content.getvalue()


def unpack_folder(packed: bytes, folder: Path) -> None:
    """Write the files of a `pack_folder` archive to `folder`, which appears when it is complete."""
    with replace_folder(folder) as temporary:
        add_files(packed, temporary)


def add_files(packed: bytes, folder: Path) -> None:
    """Write the files of a `pack_folder` archive into a folder, each file atomically. Raises
    InputError if a name leads out of the folder."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for name in archive.namelist():
            path = place_below(folder, name, "files from another machine")
            write_bytes(archive.read(name), path)
