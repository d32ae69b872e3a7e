"""Check a submission file as the competition would, before a submission is spent on it.

It reads the file's text again, independently of the writer. Kaggle says "Successfully submitted" to
anything and hides the reason if it cannot score it.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from solution.domain.collection import collection_of
from solution.domain.metrics import TOP_K
from solution.system.errors import InputError
from solution.system.files import open_regular
from solution.system.wording import count

HEADER = ["ID", "TopConfigs"]
MAX_SHOWN = 3
MAX_FIELD = MAX_BYTES = 1 << 30  # far more than all configurations of all graphs need
MAX_DIGITS = 9
MAX_TEXT = 60  # maximum characters of the file's text in a message; an ID has fewer


@dataclass(frozen=True)
class Expected:
    """The rows that a submission must have."""

    num_configs: Mapping[str, int | None]  # by ID; None if the graph's file is not available
    source: str  # origin of the expectation, for messages


def check_submission(path: Path, expected: Expected, shown: Path | None = None) -> int:
    """Return the number of rows; raise InputError at the first kind of defect.

    Defects are a wrong header, missing, unknown or repeated IDs, a file without rows, and in a row:
    text that is not an index, repeated indices, indices out of range, and a count other than all
    (layout) or five (tile).

    Args:
        shown: the file's name in messages, if it is a temporary file.
    """
    name = shown or path
    rows = read_rows(path, name)
    _check_ids(name, [row[0] for row in rows], expected)
    if not rows:
        raise InputError(f"{name}: has no rows, because {expected.source} has none.")
    for line, (graph, configs) in enumerate(rows, start=2):
        defect = _find_defect(graph, configs, expected.num_configs[graph])
        if defect:
            raise InputError(
                f"{name}, line {line}, {_shorten(graph)}: {defect}. Write the file again."
            )
    return len(rows)


def read_rows(path: Path, shown: Path, encoding: str = "utf-8") -> list[tuple[str, str]]:
    """Yield ID and TopConfigs of every row; raise InputError if the file is no such CSV.

    Args:
        encoding: "utf-8-sig" if a byte-order mark may stand at the beginning, as in a sample.
    """
    if not path.is_file():
        raise InputError(f"{shown}: there is no such file. Write it with `fastslow run`.")
    csv.field_size_limit(MAX_FIELD)  # a row of 100,040 configurations has 690,000 characters
    try:
        with (
            open_regular(path, "a submission", MAX_BYTES) as content,
            io.TextIOWrapper(content, encoding=encoding, newline="") as file,
        ):
            return _read_rows(csv.reader(file), shown)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{shown}: not a CSV file: {error}.") from error


def _read_rows(lines: Iterator[list[str]], shown: Path) -> list[tuple[str, str]]:
    """Stop at the first invalid line, because a wrong file may have very many."""
    header = next(lines, [])
    if header != HEADER:
        found = _shorten(",".join(header))
        raise InputError(f"{shown}: expected the header ID,TopConfigs, found {found!r}.")
    rows = []
    for line, row in enumerate(lines, start=2):
        if len(row) != len(HEADER):
            raise InputError(f"{shown}, line {line}: expected 2 columns, found {len(row)}.")
        rows.append((row[0], row[1]))
    return rows


def _check_ids(path: Path, names: list[str], expected: Expected) -> None:
    findings = {
        "repeats {}": [name for name, times in Counter(names).items() if times > 1],
        "has {} that nothing asks for": [n for n in names if n not in expected.num_configs],
        "lacks {}": sorted(set(expected.num_configs) - set(names)),
    }
    for words, found in findings.items():
        if found:
            raise InputError(
                f"{path}: {words.format(count(len(found), 'ID'))}, such as "
                f"{', '.join(map(_shorten, found[:MAX_SHOWN]))}; {len(expected.num_configs)} rows "
                f"are expected by {expected.source}."
            )


def _find_defect(name: str, text: str, num_configs: int | None) -> str | None:
    parts = text.split(";")
    if not all(part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS for part in parts):
        return f"expected indices joined by ';', found {text[:40]!r}"
    indices = [int(part) for part in parts]
    if len(set(indices)) < len(indices):
        repeated = next(index for index, count in Counter(indices).items() if count > 1)
        return f"index {repeated} is repeated"
    if num_configs is None:
        return None
    if max(indices) >= num_configs:
        return f"index {max(indices)} is out of range, the graph has {num_configs} configurations"
    wanted = count_wanted(name, num_configs)
    if len(indices) != wanted:
        return f"expected {wanted} indices, found {len(indices)}"
    return None


def _shorten(text: str) -> str:
    """Shorten text of the file for a message."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def count_wanted(name: str, num_configs: int) -> int:
    """Return how many indices the row `name` must list: all for layout, the five fastest for
    tile."""
    kind = collection_of(name).kind
    return num_configs if kind == "layout" else min(TOP_K, num_configs)
