"""Pack a folder into bytes (an archive), to send it from one machine to another."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from solution.system.files import replace_file, replace_folder
from solution.system.names import place_below
from solution.system.zips import describe_member

WHAT = "files from another machine"


def pack_folder(folder: Path) -> bytes:
    """Return an uncompressed archive of all files below the folder; equal files give equal
    bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.writestr(
                describe_member(path.relative_to(folder).as_posix()), path.read_bytes()
            )
    return content.getvalue()


def unpack_folder(parcel: bytes, folder: Path) -> None:
    """Write the files of a `pack_folder` archive to `folder`, which appears when complete.

    Raises InputError if a name leads out of the folder.
    """
    with replace_folder(folder) as temporary:
        for name, content in _read(parcel):
            path = place_below(temporary, name, WHAT)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def add_files(parcel: bytes, folder: Path) -> None:
    """Write the files of an archive of `pack_folder` into an existing folder, each file
    atomically."""
    for name, content in _read(parcel):
        with replace_file(place_below(folder, name, WHAT)) as temporary:
            temporary.write_bytes(content)


def _read(parcel: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)
