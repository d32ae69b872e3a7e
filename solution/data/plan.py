"""Decide what a run trains on and predicts, before anything is trained.

The folds are drawn here, once; they are saved with the run and never drawn again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.data.folders import GraphFile, find_files, find_sample_submission
from solution.data.folds import NO_FOLD, Scheme, assign_folds
from solution.data.graphs import GraphCache, LazyGraphs
from solution.data.questions import choose_configs
from solution.data.scan import scan
from solution.errors import InputError
from solution.predictions import QUESTION_KEYS, RANKING_SCHEMA

MAX_SHOWN = 10
IS_LABELLED = pl.col("fold") != NO_FOLD
IS_TEST = pl.col("split") == "test"
QUICK_LABELLED, QUICK_TEST = 8, 3  # graphs of a collection in a quick look


@dataclass(frozen=True)
class Plan:
    """The graphs of a run and their folds."""

    graphs: pl.DataFrame  # the fields of data.scan.Summary, and group, fold; a row a graph
    files: Sequence[GraphFile]  # in the same order
    sample_submission: Path | None
    cache: GraphCache

    def rows(self, collection: str, *conditions: pl.Expr) -> pl.DataFrame:
        """The rows of the collection where the conditions hold, with their `position`."""
        here = pl.col("collection") == collection
        return self.graphs.with_row_index("position").filter(here, *conditions)

    def load(self, rows: pl.DataFrame) -> LazyGraphs:
        """The graphs of `rows`, in the same order."""
        return LazyGraphs([self.files[position] for position in rows["position"]], self.cache)

    def folds(self, collection: str) -> list[int]:
        """The folds that can be held out: none where all labelled graphs share one group."""
        found = sorted(self.rows(collection, IS_LABELLED)["fold"].unique().to_list())
        return found if len(found) > 1 else []

    def labels(self) -> pl.DataFrame:
        """collection, graph, config, runtime of what is predicted out of fold."""
        frames = []
        for name in self.graphs["collection"].unique(maintain_order=True):
            if self.folds(name):
                for graph in self.load(self.rows(name, IS_LABELLED)):
                    configs = choose_configs(graph.key, graph.num_configs)
                    if graph.runtimes is not None:
                        frames.append(_keyed(graph.key, configs, graph.runtimes[configs]))
        return pl.concat(frames) if frames else _keyed(("", ""), np.empty(0), np.empty(0))

    def test_questions(self) -> pl.DataFrame:
        """collection, graph, config: every configuration of every test graph."""
        test = self.graphs.filter(IS_TEST)
        return test.select(
            "collection", "graph", pl.int_ranges(0, "configs", dtype=pl.Int32()).alias("config")
        ).explode("config")

    def settings(self) -> dict[str, Any]:
        """What identifies the data."""
        columns = [name for name in self.graphs.columns if name != "path"]
        digest = hashlib.sha256(self.graphs.select(columns).write_csv().encode())
        return {"graphs": len(self.graphs), "data": digest.hexdigest()[:16]}


def make_plan(folder: Path, scheme: Scheme, num_folds: int, *, limit: bool = False) -> Plan:
    """Find, read and check every file, and draw the folds.

    Args:
        limit: a quick look: a few graphs of each collection.

    Raises InputError with every defect that was found.
    """
    files = find_files(folder)
    if limit:
        files = _limit(files)
    summaries, defects = scan(files)
    if defects:
        shown = defects[:MAX_SHOWN]
        more = [f"... and {len(defects) - MAX_SHOWN} more"] if len(defects) > MAX_SHOWN else []
        raise InputError("\n".join([*shown, *more]))
    graphs = assign_folds(summaries, scheme, num_folds, seed=0)
    return Plan(graphs, files, find_sample_submission(folder), GraphCache())


def _limit(files: list[GraphFile]) -> list[GraphFile]:
    """A few graphs of each collection, spread evenly over the names."""
    chosen: list[GraphFile] = []
    for collection in dict.fromkeys(file.collection for file in files):
        own = [file for file in files if file.collection == collection]
        for is_test, count in ((False, QUICK_LABELLED), (True, QUICK_TEST)):
            part = [file for file in own if (file.split == "test") == is_test]
            positions = np.unique(np.linspace(0, len(part) - 1, count).astype(int))
            chosen += [part[position] for position in positions if part]
    return chosen


def _keyed(key: tuple[str, str], configs: np.ndarray, runtimes: np.ndarray) -> pl.DataFrame:
    schema = pl.Schema({name: RANKING_SCHEMA[name] for name in QUESTION_KEYS})
    schema["runtime"] = pl.Float64()
    frame = pl.DataFrame({"config": configs, "runtime": runtimes}).with_columns(
        pl.lit(key[0]).alias("collection"), pl.lit(key[1]).alias("graph")
    )
    return frame.select(*QUESTION_KEYS, "runtime").cast(schema)
