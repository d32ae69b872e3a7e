"""The columns of the feature tables for people, and the tables themselves as a file."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from solution.analysis import module_table
from solution.analysis.feature_files import write_table
from solution.domain.collection import Collection
from solution.features.column import Feature
from solution.features.columns import FEATURES
from solution.store.lazy_graphs import GraphCache
from solution.store.store import Store
from solution.system.progress import track
from solution.system.terminal import make_table
from solution.system.wording import count


def show_features(kind: str, word: str = "") -> Table:
    """Name, unit and reason of every column of the table of layout or tile graphs.

    Args:
        word: only columns in which it stands, in any of the three.
    """
    return _show(f"The {kind} table", "a row a configuration", FEATURES[kind], word)


def show_module_features(word: str = "") -> Table:
    """The same of the table that a program's protobuf gives."""
    title = "The module table, of `fastslow module FILE --features TABLE`"
    return _show(title, "a row a node", module_table.FEATURES, word)


def _show(title: str, rows: str, features: Sequence[Feature], word: str) -> Table:
    features = [
        feature
        for feature in features
        if word.lower() in f"{feature.name} {feature.unit} {feature.reason}".lower()
    ]
    table = make_table(f"{title}: {count(len(features), 'column')}, {rows}")
    table.add_column("Feature", no_wrap=True)
    table.add_column("Unit")
    table.add_column("Reason")
    for feature in features:
        table.add_row(feature.name, feature.unit, feature.reason)
    return table


def write_collection(store: Store, collection: Collection, path: Path) -> int:
    """Write the table of all graphs of the collection, of which there are some; its rows."""
    rows = store.graphs.filter(store.graphs["collection"] == collection.name)
    graphs = store.load(rows.sort("graph"), GraphCache(0))
    with track(graphs, f"Table of {collection.name}") as tracked:
        write_table(tracked, path)
    return int(rows["configs"].sum())
