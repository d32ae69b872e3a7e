"""A folder as bytes, to send it from one machine to another."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from solution.system.errors import InputError
from solution.system.files import replace_file, replace_folder
from solution.system.zips import describe_member


def pack_folder(folder: Path) -> bytes:
    """All files below the folder, stored as they are; equal files give equal bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.writestr(
                describe_member(path.relative_to(folder).as_posix()), path.read_bytes()
            )
    return content.getvalue()


def unpack_folder(parcel: bytes, folder: Path) -> None:
    """Write what `pack_folder` took; the folder appears when it is complete.

    Raises InputError where a name leads out of the folder.
    """
    with replace_folder(folder) as temporary:
        for name, content in _read(parcel):
            path = _lead(name, temporary)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def add_files(parcel: bytes, folder: Path) -> None:
    """Write what `pack_folder` took beside what is in the folder, each file atomically."""
    for name, content in _read(parcel):
        with replace_file(_lead(name, folder)) as temporary:
            temporary.write_bytes(content)


def _read(parcel: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)


def _lead(name: str, folder: Path) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: expected files of it, found {name!r}.")
    return path
