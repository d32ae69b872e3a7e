"""Store a bundle as one zip, and unpack such a zip safely.

Members are stored uncompressed, so that the zip can be memory-mapped. A zip may come from anywhere:
before a byte is unpacked, its list of members is compared with the bundle's record. Other names,
other sizes, compressed members and links are rejected.
"""

import shutil
import zipfile
from pathlib import Path, PurePosixPath

from solution.serving.record import RECORD, read_bundle_record
from solution.system.errors import InputError
from solution.system.files import MAX_JSON, replace_file
from solution.system.refusals import name_full_disk
from solution.system.zips import describe_member, open_untrusted

ZIP = ".zip"
MAX_MEMBERS = 100_000
ADVICE = "Make the zip with `fastslow pack`, or unpack it and give the folder."


def write_archive(bundle: Path, path: Path) -> Path:
    """Write a bundle's files into an uncompressed zip and return its path. The files are sorted by
    name, so that equal bundles give equal bytes."""
    names = [RECORD, *sorted(read_bundle_record(bundle, bundle).files)]
    with (
        name_full_disk(path.parent),
        replace_file(path) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name in names:
            member = archive.open(describe_member(name), "w")
            with (bundle / name).open("rb") as file, member:
                shutil.copyfileobj(file, member)
    return path


def is_archive(path: Path) -> bool:
    """Return True if the file is a zip with a bundle's record in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return RECORD in archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return False


def unpack(path: Path, folder: Path) -> None:
    """Unpack a bundle's zip into an empty folder, without comparing checksums. Raises InputError if
    the file is no zip, its members differ from the list in its record, or the disk is full."""
    try:
        with open_untrusted(path, folder) as archive:
            members = _check_members(archive, path)
            if RECORD not in members:
                raise InputError(f"{path}: a zip, but no bundle: it has no {RECORD}.")
            _extract(archive, members[RECORD], MAX_JSON, folder, path)
            sizes = read_bundle_record(folder, path).sizes
            _check_listed(members, sizes, path)
            for name, size in sizes.items():
                _extract(archive, members[name], size, folder, path)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path}: truncated or no zip of a bundle ({error}). `fastslow pack` writes one."
        ) from error


def _check_members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; raise InputError unless all are uncompressed files with distinct
    names in their usual form."""
    members: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > MAX_MEMBERS:
        raise InputError(f"{path}: holds more than {MAX_MEMBERS:,} files.")
    for info in archive.infolist():
        name = info.filename
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise InputError(f"{path}: {name} is compressed, expected it stored as it is. {ADVICE}")
        if info.is_dir():
            raise InputError(f"{path}: lists the folder {name!r}, expected files alone. {ADVICE}")
        if name in members or str(PurePosixPath(name)) != name:
            raise InputError(f"{path}: names {name!r} twice or in another form.")
        members[name] = info
    return members


def _check_listed(members: dict[str, zipfile.ZipInfo], sizes: dict[str, int], path: Path) -> None:
    """Raise InputError unless the members are the record and the files of `sizes` (bytes)."""
    other = members.keys() ^ {RECORD, *sizes}
    if other:
        raise InputError(f"{path}: {min(other)!r} is not both in the zip and in its record.")
    for name, size in sizes.items():
        if members[name].file_size != size:
            raise InputError(
                f"{path}: {name} has {members[name].file_size:,} bytes, expected {size:,}."
            )


def _extract(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int, folder: Path, path: Path
) -> None:
    if info.file_size > limit:
        raise InputError(f"{path}: {info.filename} is larger than the {limit:,} bytes it may be.")
    target = folder / info.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(info) as member, target.open("xb") as file:
        shutil.copyfileobj(member, file)
