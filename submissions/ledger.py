"""The ledger: one row for every submission that was ever begun, in submissions/ledger.csv.

It is committed and may be edited by hand: columns and rows that this project did not write are
kept. Rows are sorted, and two rows of one key (left by a merge of branches) become one, so
`merge=union` in .gitattributes is enough to merge branches.

    sending   written before the upload: not known yet whether it arrives
    accepted  Kaggle answered that it was submitted, but does not list it yet
    pending   Kaggle lists it, without a score so far
    scored    Kaggle lists it with its scores
    error     Kaggle lists it and could not score it
    failed    it did not arrive and used up no submission
"""

import csv
import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from solution.domain.collection import NAMES
from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file
from submissions.locks import wait_for_lock

MAX_BYTES = 64 << 20  # a row has a few hundred
OOF_COLUMNS = {name: "oof_" + name.replace(":", "_") for name in NAMES}
COLUMNS = (
    "key",
    "when",  # UTC, ISO 8601
    "recipe",
    "experiments",  # joined by +
    "commit",  # of the run, which made the predictions
    "data",  # fingerprint of the data folder
    "file",  # first digits of the CSV's SHA-256
    "state",
    "ref",  # Kaggle's number of the submission
    *OOF_COLUMNS.values(),
    "oof_mean",
    "public",
    "private",
    "notes",
)
# States, from the least to the most known about a submission.
STATES = ("", "sending", "accepted", "failed", "pending", "error", "scored")
IN_DOUBT = ("sending", "accepted")
CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")

Line = dict[str, str]


@dataclass
class Ledger:
    """The rows of the file and its columns, in order."""

    columns: list[str] = field(default_factory=lambda: list(COLUMNS))
    lines: list[Line] = field(default_factory=list)

    def find(self, key: str) -> Line | None:
        """Return the row of a submission; None if there is none."""
        return next((line for line in self.lines if line["key"] == key), None)

    def in_doubt(self) -> list[Line]:
        """Return the rows of submissions that may or may not have arrived."""
        return [line for line in self.lines if line["state"] in IN_DOUBT]

    def of_file(self, fingerprint: str) -> list[Line]:
        """Return the submissions of this very file that arrived or may have arrived."""
        return [
            line
            for line in self.lines
            if line["file"] == fingerprint and line["state"] not in ("", "failed")
        ]

    def put(self, key: str, **values: str) -> None:
        """Change the row of `key`, or add it."""
        line = self.find(key)
        if line is None:
            line = dict.fromkeys(self.columns, "")
            self.lines.append(line)
        line.update(values, key=key)


def read_ledger(path: Path) -> Ledger:
    """Read the file; return an empty ledger if there is none.

    Raises:
        InputError: it cannot be read without losing something; the message names the line.
    """
    if not path.exists() and not path.is_symlink():
        return Ledger()
    try:
        content = open_regular(path, "a ledger", MAX_BYTES)
        # a spreadsheet may write a byte-order mark
        with io.TextIOWrapper(content, "utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8 text: {error}. Save it as UTF-8.") from error
    except OSError as error:  # a dangling link must not count as no ledger
        raise InputError(
            f"{path}: expected a ledger that can be read, but: {error.strerror}. Make it readable, "
            "or restore what it is a link to."
        ) from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(CONFLICT):
            raise InputError(
                f"{path}, line {number}: an unsolved merge conflict. Keep all lines of both sides, "
                "delete the marks; lines of one key are joined by themselves."
            )
    return _parse(path, text)


def _parse(path: Path, text: str) -> Ledger:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    ledger = Ledger(columns=[])
    try:
        for row in rows:
            if not row:
                continue
            if not ledger.columns:
                ledger.columns = _read_header(path, row)
            elif len(row) > len(ledger.columns):
                raise InputError(
                    f"{path}, line {rows.line_num}: {len(row)} cells, but the header has "
                    f"{len(ledger.columns)}. Put quotes around a cell that holds commas."
                )
            else:
                cells = row + [""] * (len(ledger.columns) - len(row))
                ledger.lines.append(dict(zip(ledger.columns, cells, strict=True)))
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: not a CSV line: {error}.") from error
    missing = [name for name in COLUMNS if name not in ledger.columns]
    ledger.columns += missing
    for line in ledger.lines:
        line.update(dict.fromkeys(missing, ""))
        if line["key"]:
            line["state"] = line["state"].strip().lower()  # it may have been edited by hand
    ledger.lines = _join_lines(ledger.lines)
    return ledger


def _read_header(path: Path, row: list[str]) -> list[str]:
    if "key" not in row or len(set(row)) < len(row):
        raise InputError(
            f"{path}: expected a header of distinct names with a column key, found "
            f"{','.join(row)[:200]!r}. Restore it: git checkout {path}"
        )
    return list(row)


def _join_lines(lines: list[Line]) -> list[Line]:
    """Merge rows of one key; rows without a key were added by the user and are kept."""
    joined: list[Line] = []
    by_key: dict[str, Line] = {}
    for line in lines:
        key = line["key"]
        if not key or key not in by_key:
            joined.append(line)
            by_key[key] = line
        else:
            _join(by_key[key], line)
    return joined


def _join(line: Line, other: Line) -> None:
    """Add the other row's information; different notes are both kept."""
    further = _rank(other) > _rank(line)
    for name, value in other.items():
        own = line[name]
        if not own or not value or own == value:
            line[name] = own or value
        elif name == "notes" or name not in COLUMNS:
            known = own.split(" | ")
            line[name] = " | ".join([*known, *(v for v in value.split(" | ") if v not in known)])
        elif further:
            line[name] = value


def _rank(line: Line) -> int:
    return STATES.index(line["state"]) if line["state"] in STATES else len(STATES)


def write_ledger(ledger: Ledger, path: Path) -> None:
    """Write the file atomically, sorted by time and key."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ledger.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(ledger.lines, key=lambda line: (line["when"], line["key"])))


def read_number(cell: str | None) -> float | None:
    """Return the number in a cell; None if it is not a number."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@contextmanager
def edit_ledger(path: Path) -> Iterator[Ledger]:
    """Read, change and write the file while holding its lock."""
    lock = path.with_name(f".{path.name}.lock")
    with wait_for_lock(lock, 60.0, "is writing the ledger"):
        ledger = read_ledger(path)
        before = repr(ledger)
        yield ledger
        if repr(ledger) != before or not path.is_file():
            write_ledger(ledger, path)
