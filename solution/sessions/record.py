"""Write and read kernel.json, which identifies the outputs of a notebook's session.

A push uploads a notebook to Kaggle and starts it. Kaggle's CLI downloads the outputs of the latest
session, whichever push started it, and saves whatever it receives. So the outputs contain a record
of their push and commit, whether the notebook finished, and the checksum of every file.
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ValidationError

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_sealed, write_sealed
from solution.system.names import check_inside

KERNEL_RECORD = "kernel.json"
BUNDLE = "bundle.zip"  # file name of the bundle of models, beside kernel.json
State = Literal["running", "stopped", "finished"]


class SessionRecord(BaseModel):
    """The record of a session: what ran, how it ended, and which files it left."""

    notebook: str
    # key of the push (upload to Kaggle) that started the session; empty if a person started it
    push: str = ""
    commit: str = ""
    state: State = "running"  # stays "running" if the session is killed
    note: str = ""  # the remaining work, in words
    # The SHA-256 of each output, by path. No path may lead out of the outputs' folder, because a
    # pull, which downloads the outputs from Kaggle, deletes files with a wrong checksum.
    files: dict[Annotated[str, AfterValidator(check_inside)], str] = {}


def write_session_record(record: SessionRecord, folder: Path) -> None:
    """Write the record into the folder, with the checksums of all files that are in it now."""
    files = {
        _name(path, folder): checksum(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != KERNEL_RECORD and not _is_hidden(path, folder)
    }
    write_sealed(record.model_copy(update={"files": files}).model_dump(), folder / KERNEL_RECORD)


def read_session_record(folder: Path) -> SessionRecord:
    """Read the record in the folder; raise InputError if it is missing or invalid."""
    path = folder / KERNEL_RECORD
    try:
        return SessionRecord.model_validate(read_sealed(path, "the record of a session"))
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: is missing in the outputs, so they are of another notebook, or of a session "
            "that failed at its beginning."
        ) from error
    except (InputError, ValidationError) as error:
        raise InputError(
            f"{path}: expected the record of a session, found something else. Get it again."
        ) from error


def find_damaged(record: SessionRecord, folder: Path) -> list[str]:
    """Return the names of recorded outputs that are missing or have another checksum."""
    return [
        name
        for name, expected in record.files.items()
        if not (folder / name).is_file() or checksum(folder / name) != expected
    ]


def find_foreign(folder: Path) -> list[str]:
    """Return the files in a folder of outputs that are links, or that its session's record lacks or
    lists with another checksum; all files if no session started by a push left a record."""
    written: dict[str, str] = {}
    with suppress(InputError):
        record = read_session_record(folder)
        if record.push:
            written = {**record.files, KERNEL_RECORD: checksum(folder / KERNEL_RECORD)}
    files = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return [
        name
        for path in files
        if path.is_symlink()
        or (name := _name(path, folder)) not in written
        or checksum(path) != written[name]
    ]


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _is_hidden(path: Path, folder: Path) -> bool:
    """Return True if the path is a temporary file, or a file of Jupyter or Python."""
    parts = path.relative_to(folder).parts
    return any(part.startswith((TEMPORARY, ".", "__")) for part in parts)
