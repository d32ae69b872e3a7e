"""The feature tables of many graphs as one file: a row a configuration, with its names."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import polars as pl

from solution.domain.graph import Graph
from solution.domain.predictions import RANKING_SCHEMA, REQUEST_KEYS
from solution.features.table import feature_table, list_features
from solution.system.errors import InputError
from solution.system.parquet import write_batches


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


def write_table(graphs: Iterable[Graph], path: Path) -> pl.LazyFrame:
    """Write the table of the graphs of one collection as one Parquet file, and scan it lazily.

    Only some graphs are in memory at once, so the table may be larger than memory.

    Raises InputError where some have compile options and others have not: their columns differ.
    """
    remaining = iter(graphs)
    first = next(remaining)
    names = [feature.name for feature in list_features(first)]
    schema = pl.Schema({name: RANKING_SCHEMA[name] for name in REQUEST_KEYS})
    schema.update({name: pl.Float32() for name in names})
    schema["runtime"] = pl.Float64()
    alike = _check_alike(chain([first], remaining), first)
    write_batches(keyed_tables(alike), schema, path, sealed=False)
    return pl.scan_parquet(path, glob=False)


def _check_alike(graphs: Iterable[Graph], first: Graph) -> Iterator[Graph]:
    for graph in graphs:
        if (graph.options is None) != (first.options is None):
            raise InputError(
                f"{graph.name} and {first.name}: one has compile options and the other has none, "
                "so their tables have different columns. Give a folder for each."
            )
        yield graph
