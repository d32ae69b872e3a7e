"""Write a ranking of the test graphs as the competition's CSV.

`ID,TopConfigs`: a row for each test graph; configurations from fastest to slowest, all of them for
layout, five for tile. sample_submission.csv, if it exists, decides the rows and their order.
"""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import order_graphs
from solution.domain.collection import NAMES
from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.sealing import NOTHING, describe_file
from solution.system.wording import count
from submissions.checker import HEADER, Expected, check_submission, count_wanted, read_rows

PLACES = {name: place for place, name in enumerate(NAMES)}


@dataclass(frozen=True)
class Written:
    """The result of writing a submission."""

    path: Path
    rows: int
    kept: int  # rows of the sample submission without a graph file, copied from it
    left_out: int  # predicted graphs that the sample submission does not contain
    description: str  # SIZE:SHA256 of the file, or a note that there is none

    def describe(self) -> str:
        """Return what the user should know about it."""
        if not self.rows:
            return "Submission: none, for the data has neither test graphs nor a sample of one."
        lines = [f"Submission: {self.path} ({count(self.rows, 'row')}, checked)"]
        if self.kept:
            lines.append(
                f"{self.kept} of its rows are copied from sample_submission.csv, because the data "
                "folder does not have their graphs: they score as nothing done."
            )
        if self.left_out:
            lines.append(
                f"Left out: {count(self.left_out, 'test graph')} that the sample does not ask for."
            )
        return "\n".join(lines)


def write_submission(
    ranking: pl.DataFrame, graphs: pl.DataFrame, sample: Path | None, path: Path
) -> Written:
    """Write and check a submission by replace_submission, without a further step.

    Args:
        ranking: collection, graph, config, score of the test graphs.
    """
    with replace_submission(order_graphs(ranking), graphs, sample, path) as written:
        return written


@contextmanager
def replace_submission(
    orders: Mapping[str, np.ndarray], graphs: pl.DataFrame, sample: Path | None, path: Path
) -> Iterator[Written]:
    """Write and check a submission, atomically, and yield the result.

    The new file replaces the old one when the block succeeds. After a defect, or if no rows are
    needed, there is no file.

    Args:
        orders: by ID, the configurations of each test graph from fastest to slowest.
        graphs: collection, graph, split, configs: every graph of the run.
        sample: the competition's sample_submission.csv, or None.

    Raises:
        InputError: a test graph has no ranking, or the file does not pass the checker.
    """
    expected, sampled = expect(graphs, sample), _read_sample(sample)
    if not expected.num_configs:
        yield Written(path, 0, 0, 0, NOTHING)
        path.unlink(missing_ok=True)
        return
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
        yield Written(path, count, count - predicted, left_out, describe_file(temporary))


def expect(graphs: pl.DataFrame, sample: Path | None) -> Expected:
    """Return the expected rows, in order: the sample's, or without a sample the test split's.

    Args:
        graphs: collection, graph, split, configs: every graph of the run.
    """
    place = pl.col("collection").replace_strict(PLACES, return_dtype=pl.Int64())
    test = graphs.filter(pl.col("split") == "test").sort(place, "graph")
    sizes = {f"{c}:{g}": n for c, g, n in test.select("collection", "graph", "configs").rows()}
    if sample is None:
        return Expected(sizes, "the test split")
    return Expected({name: sizes.get(name) for name in _read_sample(sample)}, str(sample))


def _read_sample(sample: Path | None) -> dict[str, str]:
    if sample is None:
        return {}
    rows = dict(read_rows(sample, sample, "utf-8-sig"))
    if not rows:
        raise InputError(f"{sample}: has no rows below its header. Get the file again.")
    return rows


def _write_csv(rows: dict[str, str], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows.items())
