"""The feature table of many graphs: one row per (graph, configuration), with their names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from solution.domain.collection import Collection
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.predictions import QUESTION_KEYS, RANKING_SCHEMA
from solution.features.catalogue import features_of
from solution.features.layout_table import layout_table
from solution.features.tile_table import tile_table
from solution.system.parquet import write_batches


def feature_table(graph: Graph) -> pl.DataFrame:
    """The columns of solution.features.catalogue, a row for each configuration in order."""
    return (layout_table if graph.collection.kind == "layout" else tile_table)(graph)


def _compute_distinct(graph: Graph) -> np.ndarray:
    first = graph.distinct.first
    if graph.collection.kind == "layout":  # most may be copies, of which no rows are made
        return layout_table(graph, first).to_numpy(order="c")
    return tile_table(graph).to_numpy(order="c")[first]


# Rows (distinct configs, columns) float32 in the order of Graph.distinct.
distinct_rows = PerGraph(_compute_distinct)


def keyed_tables(graphs: Iterable[Graph]) -> Iterator[pl.DataFrame]:
    """Each graph's table, its names first and the runtimes last (null where there are none)."""
    for graph in graphs:
        runtimes = pl.Series("runtime", graph.runtimes, dtype=pl.Float64())
        missing = pl.lit(None, pl.Float64()).alias("runtime")
        yield feature_table(graph).select(
            pl.lit(graph.collection.name).alias("collection"),
            pl.lit(graph.name).alias("graph"),
            pl.int_range(pl.len(), dtype=pl.Int32()).alias("config"),
            pl.all(),
            missing if graph.runtimes is None else runtimes,
        )


def write_table(graphs: Iterable[Graph], collection: Collection, path: Path) -> pl.LazyFrame:
    """Write the table of the graphs of one collection as one Parquet file, and scan it lazily.

    Only some graphs are in memory at once, so the table may be larger than memory.
    """
    names = [feature.name for feature in features_of(collection)]
    schema = pl.Schema({name: RANKING_SCHEMA[name] for name in QUESTION_KEYS})
    schema.update({name: pl.Float32() for name in names})
    schema["runtime"] = pl.Float64()
    write_batches(keyed_tables(graphs), schema, path)
    return pl.scan_parquet(path)
