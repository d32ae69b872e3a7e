"""List the columns of the feature tables, and write the tables to a file."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import polars as pl
from rich.table import Table

from solution.domain.collection import Collection
from solution.domain.graph import Graph
from solution.domain.predictions import RANKING_SCHEMA, REQUEST_KEYS
from solution.features.table import feature_table, list_columns, list_features
from solution.store.graph_file import GraphCache
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.parquet import write_batches
from solution.system.progress import track
from solution.system.terminal import make_table
from solution.system.wording import count


def keyed_tables(graphs: Iterable[Graph]) -> Iterator[pl.DataFrame]:
    """Yield a table per graph, with a row per configuration. The columns are: collection, graph,
    config, the features, runtime (null without labels)."""
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


def _name_options(graph: Graph) -> tuple[str, ...]:
    return () if graph.options is None else graph.option_names


def _check_alike(graphs: Iterable[Graph], first: Graph) -> Iterator[Graph]:
    for graph in graphs:
        if _name_options(graph) != _name_options(first):
            raise InputError(
                f"{graph.name} and {first.name}: one has compile options and the other has none, "
                "or those of another target, so their tables have different columns. Give a folder "
                "for each."
            )
        yield graph


def show_features(kind: str, word: str = "") -> Table:
    """Return a table of layout or tile features: name, unit and reason of each column. `word`: show
    only columns whose name, unit or reason contains it."""
    features = [
        feature
        for feature in list_columns(kind)
        if word.lower() in f"{feature.name} {feature.unit} {feature.reason}".lower()
    ]
    title = f"The {kind} table: {count(len(features), 'column')}, a row a configuration"
    table = make_table(title, names=("Feature",), texts=("Unit", "Reason"))
    for feature in features:
        table.add_row(feature.name, feature.unit, feature.reason)
    return table


def write_collection(store: Store, collection: Collection, path: Path) -> int:
    """Write the feature table of a collection to a Parquet file; return its number of rows.

    Only some graphs are in memory at a time, so the table may be larger than memory. The store must
    have at least one graph of the collection.

    Raises InputError if only some graphs have compile options, or if their options are of different
    targets, because their tables then have different columns.
    """
    rows = store.graphs.filter(store.graphs["collection"] == collection.name)
    graphs = store.load(rows.sort("graph"), GraphCache(0))
    with track(graphs, f"Table of {collection.name}") as tracked:
        remaining = iter(tracked)
        first = next(remaining)
        schema = pl.Schema({name: RANKING_SCHEMA[name] for name in REQUEST_KEYS})
        schema.update({feature.name: pl.Float32() for feature in list_features(first)})
        schema["runtime"] = pl.Float64()
        alike = _check_alike(chain([first], remaining), first)
        write_batches(keyed_tables(alike), schema, path, sealed=False)
    return int(rows["configs"].sum())
