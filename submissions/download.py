"""Download the competition's data with the kaggle CLI, and unpack it safely.

    data/predict-ai-model-runtime.zip     while it is downloaded; deleted when it is unpacked
    data/...                              the files
    data/downloaded.json                  what is complete

A download that broke off goes on where it was when the same command is given again.
"""

from pathlib import Path

from solution.domain.collection import collection
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, make_folder, read_sealed, replace_file, write_sealed
from solution.system.progress import track
from submissions.archive import DamagedError, place_below, unpack
from submissions.kaggle import DataFile, Kaggle

RECEIPT = "downloaded.json"
SAMPLE = "sample_submission.csv"
PARTS = f"{TEMPORARY}download"


def download_all(kaggle: Kaggle, target: Path, max_bytes: int) -> int:
    """Download and unpack everything below `target`; return the number of files.

    Raises InputError where Kaggle refuses, or the archive is damaged or not to be trusted.
    """
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
        files = unpack(archive, target, max_bytes)
    except DamagedError:
        # The CLI would take it for complete and never download it again.
        archive.unlink()
        archive.with_name(archive.name + ".kaggle-partial").unlink(missing_ok=True)
        raise
    sizes = {str(path.relative_to(target)): path.stat().st_size for path in files}
    write_sealed(sizes, target / RECEIPT)
    archive.unlink()
    return len(files)


def download_collection(kaggle: Kaggle, target: Path, name: str, max_bytes: int) -> int:
    """Download the files of one collection and the sample submission; return their number.

    Raises InputError where there is no such collection, or Kaggle has no files of it.
    """
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
    places = {file.name: place_below(target, file.name, "the list of files") for file in wanted}
    with track(wanted, "Downloading") as tracked:
        for file in tracked:
            _fetch(kaggle, file, places[file.name], target)
    return len(wanted)


def _fetch(kaggle: Kaggle, file: DataFile, path: Path, target: Path) -> None:
    if _is_there(path, file.size):
        return
    if path.exists():
        raise InputError(
            f"{path}: is there already with {path.stat().st_size} bytes, Kaggle's has {file.size}. "
            "Nothing is overwritten: move it away, or choose another folder."
        )
    folder = target / PARTS
    kaggle.download(folder, file.name)
    # Newer versions of the CLI keep the folders of the name, older ones do not.
    arrived = next(folder.rglob(path.name), folder / path.name)
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


def _is_there(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _read_receipt(target: Path) -> dict[str, int] | None:
    try:
        return read_sealed(target / RECEIPT, "what was downloaded")
    except (InputError, OSError):
        return None
