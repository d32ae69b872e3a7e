"""Records that say what was written, so that damage is found and never taken over.

A sealed record is a JSON object with the checksum of its own contents; beside what it records it
may list the checksums of other files. A seal finds damage. It does not prove who wrote a file.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, read_json, write_json

SEAL = "seal"


def write_sealed(value: dict[str, Any], path: Path) -> None:
    """Write `value` atomically as readable JSON, with its seal."""
    write_json({**value, SEAL: _seal(value)}, path)


def read_sealed(path: Path, what: str) -> dict[str, Any]:
    """The record of `what`; InputError where it is not what was written."""
    value = read_json(path, what)
    seal = value.pop(SEAL, None)
    if seal != _seal(value):
        raise InputError(f"{path}: expected the record of {what} as it was written, found damage.")
    return value


def list_checksums(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """The SHA-256 of every file below `folder`, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: checksum(path)
        for name, path in names.items()
        if name not in leave_out and not path.name.startswith(TEMPORARY)
    }


def check_files(folder: Path, expected: object, record: Path) -> None:
    """Compare the files below `folder` with the checksums of its `record`.

    Names that would lead out of the folder, and links, are refused.

    Raises InputError where one is missing or is not what was written.
    """
    if not isinstance(expected, dict):
        raise InputError(f"{record}: expected the checksums of its files, found {expected!r}.")
    for name, digest in expected.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute() or path.is_symlink():
            raise InputError(f"{record}: names {name!r}, expected files inside its folder.")
        if not path.is_file() or checksum(path) != digest:
            raise InputError(f"{path}: is not there as it was written. Make it again.")


def _seal(value: dict[str, Any]) -> str:
    # As JSON gives it back: tuples are lists, keys are text.
    content = json.dumps(json.loads(json.dumps(value)), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()
