"""Write a ranking of the test graphs as the competition's CSV, and check the file.

`ID,TopConfigs`: a row for each test graph; configurations from fastest to slowest, all of them for
layout, five for tile. sample_submission.csv, if it exists, decides the rows and their order.

The checker reads the written file again and shares no code with the writer, because Kaggle accepts
any file and hides the reason if it cannot score it.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import order_graphs
from solution.domain.collection import NAMES, collection_of
from solution.domain.metrics import TOP_K
from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file
from solution.system.sealing import NOTHING, describe_file
from solution.system.wording import count, join_names, shorten

HEADER = ["ID", "TopConfigs"]
MAX_SHOWN = 3
MAX_FIELD = MAX_BYTES = 1 << 30  # bytes; much larger than a complete submission
MAX_DIGITS = 9
MAX_TEXT = 60  # maximum characters of the file's text in a message; an ID has fewer
ORDER = {name: number for number, name in enumerate(NAMES)}


@dataclass(frozen=True)
class Expected:
    """The rows that a submission must have."""

    # number of configurations by ID; None if the graph's file is not available
    num_configs: Mapping[str, int | None]
    source: str  # the file or split that demands these rows, for messages


def check_submission(path: Path, expected: Expected, shown: Path | None = None) -> int:
    """Return the number of rows of the submission at `path`; raise InputError if it has a defect.

    Defects are a wrong header, missing, unknown or repeated IDs, a file without rows, and in a row:
    text that is not an index, repeated indices, indices out of range, and a count other than all
    (layout) or five (tile). If `path` is a temporary file, messages name the file `shown` instead.
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
                f"{name}, line {line}, {shorten(graph, MAX_TEXT)}: {defect}. Write the file again."
            )
    return len(rows)


def read_rows(
    path: Path, shown: Path, encoding: str = "utf-8", *, blank: bool = False
) -> list[tuple[str, str]]:
    """Return ID and TopConfigs of all rows; raise InputError, which names the file `shown`, if the
    file `path` is missing, or is no CSV with these two columns. The encoding utf-8-sig accepts a
    byte-order mark at the beginning. `blank`: skip blank lines."""
    if path.is_dir():
        raise InputError(f"{shown}: is a folder. Give the file, such as {shown}/submission.csv.")
    if not path.is_file():
        raise InputError(f"{shown}: there is no such file. Write it with `fastslow run`.")
    csv.field_size_limit(MAX_FIELD)  # a row of 100,040 configurations has 690,000 characters
    try:
        with (
            open_regular(path, "a submission", MAX_BYTES) as content,
            io.TextIOWrapper(content, encoding=encoding, newline="") as file,
        ):
            return _read_rows(csv.reader(file), shown, blank=blank)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{shown}: not a CSV file: {error}.") from error


def _read_rows(lines: Iterator[list[str]], shown: Path, *, blank: bool) -> list[tuple[str, str]]:
    """Return ID and TopConfigs of every row, and raise InputError at the first invalid line. Only
    one line is reported, because a wrong file may have very many invalid lines."""
    header = next(lines, [])
    if header != HEADER:
        found = shorten(",".join(header), MAX_TEXT)
        raise InputError(f"{shown}: expected the header ID,TopConfigs, found {found!r}.")
    rows = []
    for line, row in enumerate(lines, start=2):
        if blank and not row:
            continue
        if len(row) != len(HEADER):
            raise InputError(f"{shown}, line {line}: expected 2 columns, found {len(row)}.")
        rows.append((row[0], row[1]))
    return rows


def _check_ids(path: Path, names: list[str], expected: Expected) -> None:
    findings = {
        "repeats {}": [name for name, times in Counter(names).items() if times > 1],
        "has {} that are not expected": [n for n in names if n not in expected.num_configs],
        "lacks {}": sorted(set(expected.num_configs) - set(names)),
    }
    for words, found in findings.items():
        if found:
            raise InputError(
                f"{path}: {words.format(count(len(found), 'ID'))}, such as "
                f"{', '.join(shorten(one, MAX_TEXT) for one in found[:MAX_SHOWN])}; "
                f"{len(expected.num_configs)} rows "
                f"are expected by {expected.source}."
            )


def _find_defect(name: str, text: str, num_configs: int | None) -> str | None:
    parts = text.split(";")
    for place, part in enumerate(parts, start=1):
        if not (part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS):
            return (
                f"expected indices joined by ';', found {shorten(part, MAX_TEXT)!r} at place "
                f"{place} of {len(parts)}"
            )
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


def count_wanted(name: str, num_configs: int) -> int:
    """Return how many indices a graph's row lists: all for layout, the five fastest for tile."""
    kind = collection_of(name).kind
    return num_configs if kind == "layout" else min(TOP_K, num_configs)


@dataclass(frozen=True)
class Written:
    """The result of writing a submission."""

    path: Path
    rows: int
    kept: int  # rows copied from the sample submission, because the run lacks their graphs
    left_out: int  # predicted graphs that the sample submission does not contain
    description: str  # SIZE:SHA256 of the file, or a note that it does not exist
    lacking: tuple[str, ...] = ()  # collections of copied rows of which there is no test graph
    is_quick: bool = False  # the run is a quick look, which takes few graphs

    def describe(self) -> str:
        """Return a message for the user: the file, and the rows that were copied or left out."""
        if not self.rows:
            return "Submission: none, because the data has neither test graphs nor a sample of one."
        lines = [f"Submission: {self.path} ({count(self.rows, 'row')}, checked)"]
        if self.kept:
            lines.append(
                f"{self.kept} of its rows are copied from sample_submission.csv, because "
                f"{self._explain_copies()}: they score as if nothing was predicted."
            )
        if self.left_out:
            lines.append(
                f"Left out: {count(self.left_out, 'test graph')} that the sample does not list."
            )
        return "\n".join(lines)

    def _explain_copies(self) -> str:
        if self.is_quick:
            return "the run is a quick look (--limit), which takes few graphs"
        if self.lacking:
            return (
                f"there is no test graph of {join_names(self.lacking)}: the data folder has none, "
                "or other collections were chosen (`fastslow run --collection`)"
            )
        return "the data folder lacks their graphs"


def write_submission(
    ranking: pl.DataFrame, graphs: pl.DataFrame, sample: Path | None, path: Path
) -> Written:
    """Write and check a submission from a ranking: a table of collection, graph, config, score. For
    the other arguments see replace_submission."""
    return replace_submission(order_graphs(ranking), graphs, sample, path)


def replace_submission(
    orders: Mapping[str, np.ndarray], graphs: pl.DataFrame, sample: Path | None, path: Path
) -> Written:
    """Write and check a submission, atomically.

    After an error, the old file stays. If no rows are expected, the old file is deleted and none is
    written.

    Args:
        orders: by ID, the configurations of each test graph from fastest to slowest.
        graphs: collection, graph, split, configs of every graph of the run.
        sample: the competition's sample_submission.csv, or None.

    Raises InputError if a test graph has no ranking, or the file does not pass the checker.
    """
    expected, sampled = expect(graphs, sample), read_sample(sample)
    if not expected.num_configs:
        path.unlink(missing_ok=True)
        return Written(path, 0, 0, 0, NOTHING)
    rows: dict[str, str] = {}
    for name, num_configs in expected.num_configs.items():
        if num_configs is None:
            rows[name] = sampled[name]
        elif name in orders:
            rows[name] = ";".join(
                map(str, orders[name][: count_wanted(name, num_configs)].tolist())
            )
        else:
            raise InputError(
                f"{path}: the test graph {name} has no prediction. Run an experiment that predicts "
                "its collection, or name a fallback in the recipe."
            )
    with replace_file(path) as temporary:
        _write_csv(rows, temporary)
        count = check_submission(temporary, expected, shown=path)
        predicted = sum(size is not None for size in expected.num_configs.values())
        left_out = len(orders.keys() - rows.keys())
        copied = [name for name, size in expected.num_configs.items() if size is None]
        there = set(graphs.filter(pl.col("split") == "test")["collection"])
        lacking = tuple(  # an ID may belong to no collection: the submission's check names it
            name
            for name in NAMES
            if name not in there and any(one.startswith(f"{name}:") for one in copied)
        )
        kept = count - predicted
        return Written(path, count, kept, left_out, describe_file(temporary), lacking)


def expect(graphs: pl.DataFrame, sample: Path | None) -> Expected:
    """Return the expected rows, in order: one per row of `sample` or, if that is None, one per
    graph of the test split."""
    order = pl.col("collection").replace_strict(ORDER, return_dtype=pl.Int64())
    test = graphs.filter(pl.col("split") == "test").sort(order, "graph")
    sizes = {f"{c}:{g}": n for c, g, n in test.select("collection", "graph", "configs").rows()}
    if sample is None:
        return Expected(sizes, "the test split")
    return Expected({name: sizes.get(name) for name in read_sample(sample)}, str(sample))


def read_sample(sample: Path | None) -> dict[str, str]:
    """Return TopConfigs by ID of a sample submission; {} without one. Raises InputError if the file
    is no submission, an ID is not unique, or a row is not a list of indices."""
    if sample is None:
        return {}
    listed = read_rows(sample, sample, "utf-8-sig", blank=True)
    rows = dict(listed)
    if not rows:
        raise InputError(f"{sample}: has no rows below its header. Get the file again.")
    for name, times in Counter(name for name, _ in listed).items():
        defect = _find_defect(name, rows[name], None)
        if times > 1:
            defect = f"expected one row, found {times}"
        if defect is not None:
            raise InputError(f"{sample}, {name}: {defect}. Get the file again.")
    return rows


def _write_csv(rows: dict[str, str], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows.items())
