"""Read the graph that a user names, from a folder of data, a prepared store or one file.

Find copies of a graph under another name: folders do not show them, but they distort scores.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from shlex import quote

import polars as pl

from solution.data.folders import find_files, identify_file
from solution.data.npz import read_graph
from solution.domain.collection import collection as find_collection
from solution.domain.graph import Graph
from solution.serving.reading import PROTOBUF, TEXT
from solution.store.graph_file import GraphCache
from solution.store.store import Store, is_store
from solution.system.errors import InputError
from solution.system.names import suggest
from solution.system.wording import count

SHOWN = 3  # names in a message
KEYS = ("collection", "split", "graph")


def read_named_graph(folder: Path, name: str | None, collection: str | None = None) -> Graph:
    """Read the graph `name`, or COLLECTION:NAME; from a store it is read as it was prepared.

    Args:
        name: may be None if the folder has a single graph.
        collection: look only in this collection.

    Raises InputError unless exactly one graph matches.
    """
    readers = _list_readers(folder)
    if collection is not None:
        own = f"{find_collection(collection).name}:"
        there = sorted({key.rpartition(":")[0] for key in readers})
        readers = {key: read for key, read in readers.items() if key.startswith(own)}
        if not readers:
            raise InputError(
                f"{folder}: has no graph of {collection}, it has those of {', '.join(there)}."
            )
    wanted = [key for key in readers if name in (key, _own_name(key))]
    if len(wanted) == 1:
        return readers[wanted[0]]()
    advice = f"Give one with --graph, such as {_shorten(readers)}."
    if name is None:
        raise InputError(f"{folder}: is a folder of {count(len(readers), 'graph')}. {advice}")
    if wanted:
        raise InputError(f"{folder}: {name!r} may be {' or '.join(wanted)}. Give one of these.")
    near = suggest(name, {_own_name(key) for key in readers})
    raise InputError(f"{folder}: has no graph {name!r}.{near or f' {advice}'}")


def read_file(path: Path, collection: str | None = None) -> Graph:
    """Read the graph of an npz file; raise InputError for a program or any other file."""
    if path.suffix in (*PROTOBUF, *TEXT):
        name = quote(str(path))
        shown = f"`fastslow module {name}` shows it, and " if path.suffix in PROTOBUF else ""
        raise InputError(
            f"{path}: is a program, expected an npz file. {shown}`fastslow rank {name}` ranks its "
            "configurations."
        )
    found = identify_file(path, collection)
    return read_graph(found.path, found.collection)


def _list_readers(folder: Path) -> dict[str, Callable[[], Graph]]:
    """Return a function that reads the graph, for each COLLECTION:NAME."""
    if not is_store(folder):
        return {
            f"{file.collection.name}:{file.name}": partial(read_graph, file.path, file.collection)
            for file in find_files(folder)
        }
    store = Store.open(folder)
    lazy = store.load(store.graphs, GraphCache())
    names = store.graphs.select("collection", "graph").iter_rows()
    return {
        f"{collection}:{graph}": partial(lazy.__getitem__, place)
        for place, (collection, graph) in enumerate(names)
    }


def _own_name(key: str) -> str:
    return key.rpartition(":")[2]


def _shorten(keys: Iterable[str]) -> str:
    return ", ".join(sorted({_own_name(key) for key in keys})[:SHOWN])


def find_equal_graphs(graphs: pl.DataFrame) -> list[str]:
    """Return a sentence with the number of copies and an example; an empty list if all differ.

    Args:
        graphs: with the columns collection, split, graph and source, as a store has them.
    """
    equal = graphs.filter(pl.col("source").is_duplicated())
    if equal.is_empty():
        return []
    first = equal.filter(source=equal["source"][0])
    shown = " and ".join(" ".join(row) for row in first.select(KEYS).head(2).iter_rows())
    copies = len(equal) - equal["source"].n_unique()
    verb = "is a copy" if copies == 1 else "are copies"
    return [
        f"{count(copies, 'graph')} {verb} of others under another name, such as {shown}. Scores "
        "mean less where a model has seen the copy of what it is scored on."
    ]
