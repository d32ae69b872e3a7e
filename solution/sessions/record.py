"""kernel.json: what a notebook leaves beside its outputs, so that they can be told from others.

Kaggle shows the outputs of the latest session without saying of which push they are, and its CLI
saves whatever it is sent. So the outputs themselves say which push and which commit made them,
whether the notebook came to its end, and what every file must be.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError, field_validator

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_sealed, write_sealed
from solution.system.names import leads_out

KERNEL_RECORD = "kernel.json"
BUNDLE = "bundle.zip"  # of the models, beside it
State = Literal["running", "stopped", "finished"]


class SessionRecord(BaseModel):
    """What happened in a session."""

    notebook: str
    push: str = ""  # the key of the push; empty where a person started it
    commit: str = ""
    state: State = "running"  # as it stays where the session was killed
    note: str = ""  # what is left to do, in words
    files: dict[str, str] = {}  # SHA-256 by path, of all outputs

    @field_validator("files")
    @classmethod
    def check_names(cls, files: dict[str, str]) -> dict[str, str]:
        """A pull deletes what is damaged and gets it again: only what lies among the outputs."""
        for name in files:
            if leads_out(name):
                raise ValueError(f"{name} leads out of the folder")
        return files


def write_record(record: SessionRecord, folder: Path) -> None:
    """Write it into the folder, with what the files there are now."""
    files = {
        _name(path, folder): checksum(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != KERNEL_RECORD and not _is_hidden(path, folder)
    }
    write_sealed(record.model_copy(update={"files": files}).model_dump(), folder / KERNEL_RECORD)


def read_record(folder: Path) -> SessionRecord:
    """The record in the folder; InputError where it is none."""
    path = folder / KERNEL_RECORD
    try:
        return SessionRecord.model_validate(read_sealed(path, "the record of a session"))
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: is not among the outputs, so they are of another notebook, or of a session "
            "that failed before it began."
        ) from error
    except (InputError, ValidationError) as error:
        raise InputError(
            f"{path}: expected the record of a session, found something else. Get it again."
        ) from error


def find_damaged(record: SessionRecord, folder: Path) -> list[str]:
    """The outputs that are missing in the folder or are not what was written."""
    return [
        name
        for name, expected in record.files.items()
        if not (folder / name).is_file() or checksum(folder / name) != expected
    ]


def find_foreign(folder: Path) -> list[str]:
    """The files in a folder of outputs that the session of a push did not leave as they are now.

    All of them, where no record says what such a session left.
    """
    left: dict[str, str] = {}
    try:
        record = read_record(folder)
        if record.push:
            left = {**record.files, KERNEL_RECORD: checksum(folder / KERNEL_RECORD)}
    except InputError:
        pass
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return [name for path in found if not _is_left(path, name := _name(path, folder), left)]


def _is_left(path: Path, name: str, left: dict[str, str]) -> bool:
    return not path.is_symlink() and name in left and checksum(path) == left[name]


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _is_hidden(path: Path, folder: Path) -> bool:
    """Whether it is a leftover, or of Jupyter itself."""
    parts = path.relative_to(folder).parts
    return any(part.startswith((TEMPORARY, ".", "__")) for part in parts)
