"""Read every file once: what is there, and what is wrong with it.

Files are read by threads: inflating releases the interpreter's lock.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.data.duplicates import deduplicate
from solution.data.folders import GraphFile
from solution.data.npz import read_graph
from solution.errors import InputError
from solution.graph import Graph
from solution.progress import track


@dataclass(frozen=True)
class Summary:
    """One graph in a row."""

    collection: str
    split: str
    graph: str
    path: str
    architecture: str
    nodes: int
    edges: int
    configurable: int
    configs: int
    distinct: int  # configurations after deduplication
    labelled: bool
    spread: float | None  # slowest over fastest runtime


MAX_THREADS = 4  # each holds a whole graph

_DTYPES: dict[object, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    bool: pl.Boolean(),
    float | None: pl.Float64(),
}


def summarise(graph: Graph, file: GraphFile) -> Summary:
    """Count what is in the graph."""
    runtimes = graph.runtimes
    return Summary(
        collection=graph.collection.name,
        split=file.split,
        graph=graph.name,
        path=str(file.path),
        architecture=graph.architecture,
        nodes=graph.num_nodes,
        edges=len(graph.edges),
        configurable=len(graph.configurable),
        configs=graph.num_configs,
        distinct=len(deduplicate(graph.configs).first),
        # The test split stays unseen even where somebody has its labels.
        labelled=runtimes is not None and file.split != "test",
        spread=None if runtimes is None else float(np.max(runtimes) / np.min(runtimes)),
    )


def scan(files: Sequence[GraphFile]) -> tuple[pl.DataFrame, list[str]]:
    """Read all `files` under a progress bar.

    Returns:
        A frame with the fields of Summary, a row a sound file in the order of `files`; and a
        message for each defect. Train and valid graphs without labels are defects too.
    """

    def read(file: GraphFile) -> Summary | str:
        try:
            summary = summarise(read_graph(file.path, file.collection), file)
        except InputError as error:
            return str(error)
        if file.split != "test" and not summary.labelled:
            return f"{file.path}: all runtimes are 0, which only graphs of the test split may have."
        return summary

    results = _map_with_threads(read, files, "Checking files")
    sound = [dataclasses.asdict(result) for result in results if isinstance(result, Summary)]
    schema = {field.name: _DTYPES[field.type] for field in dataclasses.fields(Summary)}
    return pl.DataFrame(sound, schema=schema), [r for r in results if isinstance(r, str)]


def _map_with_threads(
    function: Callable[[GraphFile], Summary | str], files: Sequence[GraphFile], description: str
) -> list[Summary | str]:
    with (
        ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool,
        track(files, description) as tracked,
    ):
        return [result for result, _ in zip(pool.map(function, files), tracked, strict=True)]


def tabulate(summaries: pl.DataFrame) -> pl.DataFrame:
    """A row for each collection and split: counts, sizes, share of duplicates, label spread."""
    duplicates = 1 - pl.col("distinct").sum() / pl.col("configs").sum()
    return summaries.group_by("collection", "split", maintain_order=True).agg(
        pl.len().alias("graphs"),
        pl.col("nodes").median().cast(pl.Int64).alias("nodes_median"),
        pl.col("nodes").max().alias("nodes_max"),
        pl.col("configs").median().cast(pl.Int64).alias("configs_median"),
        pl.col("configs").max().alias("configs_max"),
        pl.col("configurable").median().cast(pl.Int64).alias("configurable_median"),
        pl.col("configurable").max().alias("configurable_max"),
        duplicates.alias("duplicates"),
        pl.col("spread").median().alias("spread_median"),
    )
