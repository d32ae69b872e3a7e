"""The columns of the feature tables for people, and the tables themselves as a file."""

from pathlib import Path

from rich.table import Table

from solution.collection import Collection
from solution.data.graphs import GraphCache, LazyGraphs
from solution.data.store import Store, graph_path
from solution.errors import InputError
from solution.features.catalogue import FEATURES
from solution.features.table import write_table
from solution.progress import track
from solution.terminal import make_table


def show_features(kind: str) -> Table:
    """Name, unit and reason of every column of the table of layout or tile graphs."""
    features = FEATURES[kind]
    table = make_table(f"The {kind} table: {len(features)} columns, a row a configuration")
    table.add_column("Feature", no_wrap=True)
    table.add_column("Unit")
    table.add_column("Reason")
    for feature in features:
        table.add_row(feature.name, feature.unit, feature.reason)
    return table


def write_collection(store: Store, collection: Collection, path: Path) -> int:
    """Write the table of all graphs of the collection, and return its number of rows.

    Raises InputError where the store has no graph of it.
    """
    rows = store.graphs.filter(store.graphs["collection"] == collection.name)
    if rows.is_empty():
        raise InputError(f"{store.folder}: has no graph of {collection.name}.")
    ordered = rows.sort("graph").select("collection", "split", "graph").iter_rows()
    graphs = LazyGraphs([graph_path(store.folder, *key) for key in ordered], GraphCache(0))
    with track(graphs, f"Table of {collection.name}") as tracked:
        write_table(tracked, collection, path)
    return int(rows["configs"].sum())
