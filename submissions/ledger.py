"""The ledger: every submission that was ever begun, one line each, in submissions/ledger.csv.

It is committed and may be edited by hand: columns and lines that this project did not write are
kept as they are. Lines are sorted, and after a merge that left two lines of one key they become
one, so `merge=union` in .gitattributes is all that two branches need.

    sending   written before the upload: nobody knows yet whether it arrives
    accepted  Kaggle's answer said that it was submitted; the list does not show it so far
    pending   Kaggle lists it, without a score so far
    scored    Kaggle lists it with its scores
    error     Kaggle lists it and could not score it
    failed    it did not arrive: no slot was spent
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

MAX_BYTES = 64 << 20  # a line has a few hundred
OOF_COLUMNS = {name: "oof_" + name.replace(":", "_") for name in NAMES}
COLUMNS = (
    "key",
    "when",  # UTC, ISO 8601
    "recipe",
    "experiments",  # joined by +
    "commit",  # of the run, which made the predictions
    "data",  # fingerprint of the data folder
    "file",  # start of the CSV's SHA-256
    "state",
    "ref",  # Kaggle's number of it
    *OOF_COLUMNS.values(),
    "oof_mean",
    "public",
    "private",
    "notes",
)
# From the least to the most that is known of a submission.
STATES = ("", "sending", "accepted", "failed", "pending", "error", "scored")
IN_DOUBT = ("sending", "accepted")
CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")

Line = dict[str, str]


@dataclass
class Ledger:
    """The lines of the file and its columns, in order."""

    columns: list[str] = field(default_factory=lambda: list(COLUMNS))
    lines: list[Line] = field(default_factory=list)

    def find(self, key: str) -> Line | None:
        """The line of a submission."""
        return next((line for line in self.lines if line["key"] == key), None)

    def in_doubt(self) -> list[Line]:
        """The lines of which nobody knows whether they arrived."""
        return [line for line in self.lines if line["state"] in IN_DOUBT]

    def of_file(self, fingerprint: str) -> list[Line]:
        """The submissions of this very file that arrived or may have."""
        return [
            line
            for line in self.lines
            if line["file"] == fingerprint and line["state"] not in ("", "failed")
        ]

    def put(self, key: str, **values: str) -> None:
        """Change the line of `key`, or add it."""
        line = self.find(key)
        if line is None:
            line = dict.fromkeys(self.columns, "")
            self.lines.append(line)
        line.update(values, key=key)


def read_ledger(path: Path) -> Ledger:
    """Read the file; an empty ledger where there is none.

    Raises:
        InputError: it cannot be read without losing something; the message names the line.
    """
    if not path.exists() and not path.is_symlink():
        return Ledger()
    try:
        content = open_regular(path, "a ledger", MAX_BYTES)
        with io.TextIOWrapper(content, "utf-8-sig") as file:  # a spreadsheet may put a mark there
            text = file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8 text: {error}. Save it as UTF-8.") from error
    except OSError as error:  # a link that leads nowhere is not taken for no ledger
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
            line["state"] = line["state"].strip().lower()  # it may be written by hand
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
    """Lines of one key become one; lines without a key are somebody's own and stay."""
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
    """Take over what the other one knows; two notes are both kept."""
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
    """The number in a cell; None where there is none."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@contextmanager
def edit_ledger(path: Path) -> Iterator[Ledger]:
    """Read, change and write the file as one step that no other process can come between."""
    lock = path.with_name(f".{path.name}.lock")
    with wait_for_lock(lock, 60.0, "is writing the ledger"):
        ledger = read_ledger(path)
        before = repr(ledger)
        yield ledger
        if repr(ledger) != before or not path.is_file():
            write_ledger(ledger, path)
