"""Read graphs from files, and summarise each graph as a row of a table."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.data.folders import GraphFile
from solution.data.npz import read_graph
from solution.domain.graph import TIMED, Graph
from solution.system.errors import InputError

MAX_SHOWN = 10


@dataclass(frozen=True)
class Summary:
    """Sizes and label statistics of one graph: a row of the table of graphs."""

    collection: str
    split: str
    graph: str
    architecture: str
    nodes: int
    edges: int
    configurable: int
    configs: int
    distinct: int  # number of distinct configurations
    layouts: int  # number of distinct pairs of a configurable node and a layout
    labelled: bool
    # slowest runtime over fastest runtime
    spread: float | None
    # median, over groups of identical configurations, of slowest / fastest runtime - 1
    noise: float | None
    label_source: str = TIMED


_DTYPES: dict[object, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    bool: pl.Boolean(),
    float | None: pl.Float64(),
}
SCHEMA = pl.Schema({field.name: _DTYPES[field.type] for field in dataclasses.fields(Summary)})


def summarise(graph: Graph, split: str) -> Summary:
    """Return the summary of a graph; labels of the test split are not used."""
    distinct = graph.distinct
    runtimes = graph.runtimes if split != "test" else None
    is_layout = graph.collection.kind == "layout"
    return Summary(
        collection=graph.collection.name,
        split=split,
        graph=graph.name,
        architecture=graph.architecture,
        nodes=graph.num_nodes,
        edges=len(graph.edges),
        configurable=len(graph.configurable),
        configs=graph.num_configs,
        distinct=len(distinct.first),
        layouts=len(graph.layouts.layouts) if is_layout else 0,
        labelled=runtimes is not None,
        spread=None if runtimes is None else float(runtimes.max() / runtimes.min()),
        noise=None if runtimes is None else _noise(runtimes, distinct.inverse),
        label_source=TIMED if runtimes is None else graph.label_source,
    )


def read_labelled(file: GraphFile) -> Graph:
    """Read the graph of a file. Raises InputError if the file is defective, or if a graph of the
    split train or valid has no labels."""
    graph = read_graph(file.path, file.collection)
    if file.split != "test" and graph.runtimes is None:
        raise InputError(
            f"{file.path}: all runtimes are 0, which only graphs of the test split may have."
        )
    return graph


def aggregate(summaries: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each collection and split: medians, maxima and duplicates of its graphs."""
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


def join_defects(defects: Sequence[str]) -> str:
    """Return the first MAX_SHOWN defects, one per line, and how many more there are."""
    more = [f"... and {len(defects) - MAX_SHOWN} more"] if len(defects) > MAX_SHOWN else []
    return "\n".join([*defects[:MAX_SHOWN], *more])


def _noise(runtimes: np.ndarray, group: np.ndarray) -> float | None:
    """Return the median of slowest / fastest runtime - 1 over groups of identical configurations.
    Return None if all configurations differ. `group` (configs,): each configuration's group."""
    order = np.argsort(group, kind="stable")
    _, first, counts = np.unique(group[order], return_index=True, return_counts=True)
    slowest = np.maximum.reduceat(runtimes[order], first)
    fastest = np.minimum.reduceat(runtimes[order], first)
    repeated = counts > 1
    if not repeated.any():
        return None
    return float(np.median(slowest[repeated] / fastest[repeated]) - 1)
