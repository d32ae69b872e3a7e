"""Download the competition's data with the kaggle CLI, and unpack it safely.

    data/predict-ai-model-runtime.zip     during the download; deleted when it is unpacked
    data/...                              the files
    data/downloaded.json                  names and sizes of the files, once all are unpacked

The same command resumes an interrupted download. An archive is rejected before a byte is written if
it contains names that lead out of the target folder, links or other special entries, two entries of
one name, or more bytes than allowed. Existing files are never changed: a file that equals its entry
counts as unpacked, a different one is an error.
"""

import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from solution.domain.collection import collection
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, make_folder, read_sealed, replace_file, write_sealed
from solution.system.names import place_below
from solution.system.progress import track
from solution.system.zips import open_untrusted
from submissions.kaggle import DataFile, Kaggle

BLOCK = 1 << 20  # bytes per read
RESERVE = 1 << 28  # bytes of the disk that must stay free
RECEIPT = "downloaded.json"
SAMPLE = "sample_submission.csv"
PARTS = f"{TEMPORARY}download"  # folder for single files during their download


def unpack_download(archive: Path, target: Path, max_bytes: int) -> list[Path]:
    """Unpack a zip archive of at most `max_bytes` below `target`; return the paths of all its
    files. Raises InputError if the archive is damaged or not safe. Existing files stay unchanged.
    """
    try:
        with open_untrusted(archive, target) as opened:
            entries = [entry for entry in opened.infolist() if not entry.is_dir()]
            _check_names(archive, entries)
            if not entries:
                raise zipfile.BadZipFile("it has no files")
            _check_size(archive, entries, target, max_bytes)
            with track(entries, "Unpacking") as tracked:
                return [_extract(archive, opened, entry, target) for entry in tracked]
    except zipfile.BadZipFile as error:
        raise DamagedError(
            f"{archive}: not a complete zip archive: {error}. Give the same command again; it is "
            "downloaded afresh."
        ) from error


class DamagedError(InputError):
    """Raised if an archive is damaged or incomplete."""


def _check_names(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for entry in entries:
        folded = str(PurePosixPath(entry.filename)).casefold()  # some file systems ignore case
        if folded in seen:
            raise InputError(f"{archive}: rejected, {entry.filename!r} is in it twice.")
        seen.add(folded)


def _check_size(
    archive: Path, entries: list[zipfile.ZipInfo], target: Path, max_bytes: int
) -> None:
    total = sum(entry.file_size for entry in entries)
    if total > max_bytes:
        raise InputError(
            f"{archive}: rejected, it would unpack to {total / 1e9:.1f} GB, more than the "
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
    # No further check: zipfile's reader stops at the declared size, and checks the CRC at the end.
    with (
        opened.open(entry) as source,
        replace_file(path) as temporary,
        temporary.open("wb") as file,
    ):
        shutil.copyfileobj(source, file, BLOCK)
    return path


def _check_same(archive: Path, entry: zipfile.ZipInfo, path: Path) -> None:
    if not path.is_symlink() and _is_there(path, entry.file_size):
        checksum = 0
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                checksum = zlib.crc32(block, checksum)
        if checksum == entry.CRC:
            return
    raise InputError(
        f"{path}: exists already and differs from {entry.filename!r} in {archive}. Nothing is "
        "overwritten: move it away, or choose another folder."
    )


def download_all(kaggle: Kaggle, target: Path, max_bytes: int) -> int:
    """Download and unpack the competition's files below `target`; return their number."""
    done = _read_receipt(target)
    if done is not None and all(_is_there(target / name, size) for name, size in done.items()):
        return len(done)
    archive = target / f"{kaggle.settings.competition}.zip"
    make_folder(target)
    kaggle.download(target)
    if not archive.is_file():
        raise InputError(
            f"{archive}: expected the archive here after the download, found none. Give the same "
            "command again."
        )
    try:
        files = unpack_download(archive, target, max_bytes)
    except DamagedError:
        _remove(archive)
        raise
    sizes = {str(path.relative_to(target)): path.stat().st_size for path in files}
    write_sealed(sizes, target / RECEIPT)
    archive.unlink()
    return len(files)


def download_collection(kaggle: Kaggle, target: Path, name: str, max_bytes: int) -> int:
    """Download the files of one collection and the sample submission; return their number. Raises
    InputError if there is no such collection, or Kaggle has no files of it."""
    part = f"/{collection(name).folder}/"
    listed = kaggle.list_files()
    wanted = [file for file in listed if part in f"/{file.name}"]
    if not wanted:
        raise InputError(
            f"{name}: Kaggle lists {len(listed)} files and none with {part.strip('/')} in its "
            "path. Download everything with `make data`."
        )
    wanted += [file for file in listed if Path(file.name).name == SAMPLE]
    total = sum(file.size for file in wanted)
    if total > max_bytes:
        raise InputError(
            f"{name}: its files take {total / 1e9:.1f} GB, more than the {max_bytes / 1e9:.1f} GB "
            "that are allowed. If that is right, raise --max-gigabytes."
        )
    paths = {file: place_below(target, file.name, "the list of files") for file in wanted}
    with track(wanted, "Downloading") as tracked:
        for file in tracked:
            _fetch(kaggle, file, paths[file], target)
    return len(wanted)


def _fetch(kaggle: Kaggle, file: DataFile, path: Path, target: Path) -> None:
    if _is_there(path, file.size):
        return
    if path.exists():
        raise InputError(
            f"{path}: exists already with {path.stat().st_size} bytes, but has {file.size} at "
            "Kaggle. Nothing is overwritten: move it away, or choose another folder."
        )
    folder = target / PARTS
    kaggle.download(folder, file.name)
    arrived = _find_arrived(folder, file)
    if not _is_there(arrived, file.size):
        size = arrived.stat().st_size if arrived.is_file() else 0
        arrived.unlink(missing_ok=True)
        raise InputError(
            f"{file.name}: expected {file.size} bytes, {size} arrived. Give the same command again."
        )
    with replace_file(path) as temporary:
        arrived.replace(temporary)
    for empty in sorted(folder.rglob("*"), reverse=True):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()


def _find_arrived(folder: Path, file: DataFile) -> Path:
    """Return the downloaded file, unpacked if Kaggle sent NAME.zip instead of NAME."""
    # Search subfolders, too: newer versions of the CLI keep the folders of a file's name.
    name = Path(file.name).name
    arrived = _find(folder, name) or folder / name
    zipped = _find(folder, f"{name}.zip")
    if zipped is None or _is_there(arrived, file.size):
        return arrived
    unpacked = folder / f"{TEMPORARY}unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        files = unpack_download(zipped, unpacked, file.size)
    except InputError as error:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise InputError(f"{file.name}: expected {file.size} bytes, arrived as {error}") from error
    finally:
        _remove(zipped)
    if [path.name for path in files] != [name]:
        shutil.rmtree(unpacked)
        raise InputError(
            f"{file.name}: expected a zip of this file alone, found {len(files)} files, such as "
            f"{files[0].name}. Give the same command again."
        )
    return files[0]


def _remove(archive: Path) -> None:
    """Delete a downloaded archive, because the CLI would consider it complete and keep it."""
    archive.unlink()
    archive.with_name(f"{archive.name}.kaggle-partial").unlink(missing_ok=True)


def _find(folder: Path, name: str) -> Path | None:
    """Return the first file of this name below the folder; `name` is not read as a glob pattern."""
    return next((path for path in sorted(folder.rglob("*")) if path.name == name), None)


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _read_receipt(target: Path) -> dict[str, int] | None:
    try:
        return read_sealed(target / RECEIPT, "what was downloaded")
    except (InputError, OSError):
        return None
