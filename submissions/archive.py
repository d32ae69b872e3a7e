"""Unpack an untrusted archive safely.

Rejected before a byte is written: names that lead out of the target folder, links and other special
entries, two entries of one name, and more bytes than allowed. Existing files are never changed: an
equal one counts as unpacked, a different one is an error.
"""

import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from solution.system.errors import InputError
from solution.system.files import make_folder, replace_file
from solution.system.names import place_below
from solution.system.progress import track
from solution.system.zips import open_untrusted

BLOCK = 1 << 20  # bytes
RESERVE = 1 << 28  # bytes of the disk that must stay free


def unpack(archive: Path, target: Path, max_bytes: int) -> list[Path]:
    """Unpack a zip archive below `target`; return all its files, including existing ones.

    Args:
        max_bytes: maximum size of all files, unpacked.

    Raises:
        InputError: the archive is damaged or not safe; nothing outside `target` and no existing
            file is changed.
    """
    try:
        with open_untrusted(archive, target) as opened:
            entries = [entry for entry in opened.infolist() if not entry.is_dir()]
            _check_names(archive, entries)
            if not entries:
                raise zipfile.BadZipFile("there is nothing in it")
            _check_size(archive, entries, target, max_bytes)
            with track(entries, "Unpacking") as tracked:
                return [_extract(archive, opened, entry, target) for entry in tracked]
    except zipfile.BadZipFile as error:
        raise DamagedError(
            f"{archive}: not a whole zip archive: {error}. Give the same command again; it is "
            "downloaded afresh."
        ) from error


class DamagedError(InputError):
    """The archive is damaged or incomplete."""


def _check_names(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for entry in entries:
        folded = str(PurePosixPath(entry.filename)).casefold()  # some file systems ignore case
        if folded in seen:
            raise InputError(f"{archive}: refused, {entry.filename!r} is in it twice.")
        seen.add(folded)


def _check_size(
    archive: Path, entries: list[zipfile.ZipInfo], target: Path, max_bytes: int
) -> None:
    total = sum(entry.file_size for entry in entries)
    if total > max_bytes:
        raise InputError(
            f"{archive}: refused, it would unpack to {total / 1e9:.1f} GB, more than the "
            f"{max_bytes / 1e9:.1f} GB that are allowed. If that is right, raise --max-gigabytes."
        )
    missing = sum(entry.file_size for entry in entries if not (target / entry.filename).is_file())
    make_folder(target)
    free = shutil.disk_usage(target).free - RESERVE
    if missing > free:
        raise InputError(
            f"{archive}: it unpacks to {missing / 1e9:.1f} GB, but only {max(0, free) / 1e9:.1f} "
            f"GB are free on the disk of {target}. Free some space, then try again."
        )


def _extract(archive: Path, opened: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> Path:
    path = place_below(target, entry.filename, archive)
    if path.exists() or path.is_symlink():
        _check_same(archive, entry, path)
        return path
    # zipfile's reader stops at the declared size, and checks the CRC at the end.
    with (
        opened.open(entry) as source,
        replace_file(path) as temporary,
        temporary.open("wb") as file,
    ):
        shutil.copyfileobj(source, file, BLOCK)
    return path


def _check_same(archive: Path, entry: zipfile.ZipInfo, path: Path) -> None:
    if path.is_file() and not path.is_symlink() and path.stat().st_size == entry.file_size:
        checksum = 0
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                checksum = zlib.crc32(block, checksum)
        if checksum == entry.CRC:
            return
    raise InputError(
        f"{path}: is there already and differs from {entry.filename!r} in {archive}. Nothing is "
        "overwritten: move it away, or choose another folder."
    )
