"""Look up the graph that a user names: in a folder of data, in a prepared store, or in a file."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

import polars as pl

from solution.data.folders import find_files, identify_file
from solution.data.npz import fingerprint, read_graph
from solution.domain.collection import NAMES
from solution.domain.collection import collection as find_collection
from solution.domain.graph import Graph
from solution.runs.folder import Run, recall_origin
from solution.serving.reading import PROTOBUF, TEXT, check_collection
from solution.store.graph_file import GraphCache
from solution.store.store import Store, is_store
from solution.system.errors import InputError
from solution.system.names import suggest
from solution.system.wording import count

SHOWN = 3  # maximum number of graph names in a message


def look_up_graph(folder: Path, name: str | None, collections: Sequence[str] = NAMES) -> Graph:
    """Read a graph of one of the `collections` from a folder of data or from a store. A graph from
    a store is returned as it was prepared, for example pruned. `name`: NAME or COLLECTION:NAME;
    None if there is only one graph. Raises InputError unless exactly one graph matches."""
    every, wanted = _list_readers(folder), [find_collection(name).name for name in collections]
    readers = {key: read for key, read in every.items() if key.rpartition(":")[0] in wanted}
    if not readers:
        there = sorted({key.rpartition(":")[0] for key in every})
        raise InputError(
            f"{folder}: has no graph of {', '.join(wanted)}, it has graphs of {', '.join(there)}."
        )
    found = [key for key in readers if name in (key, _cut_collection(key))]
    if len(found) == 1:
        return readers[found[0]]()
    names = {_cut_collection(key) for key in readers}
    such = f"such as {', '.join(sorted(names)[:SHOWN])}."
    if name is None:
        graphs = count(len(readers), "graph")
        raise InputError(f"{folder}: is a folder of {graphs}. Give one with --graph, {such}")
    if found:
        raise InputError(f"{folder}: {name!r} may be {' or '.join(found)}. Give one of these.")
    near = suggest(name, names)
    raise InputError(f"{folder}: has no graph {name!r}.{near or f' Give one, {such}'}")


def find_whole(graph: Graph, store: Store, run: Run) -> tuple[Graph, str]:
    """Return a graph of the run's store with all nodes of its program, so that nodes have the
    numbers that `rank` and `module` show. If the store keeps only some nodes, it is read from the
    data that the run recorded. If these lack its file, or it was changed, return the graph as it
    is, and a sentence that says so; otherwise the sentence is empty."""
    if store.preparation.get("hops") is None or not len(graph.configurable):
        return graph, ""
    origin = recall_origin(run)
    # a name may stand in several splits; look_up_graph returns the last one, too
    row = store.graphs.filter(
        (pl.col("collection") == graph.collection.name) & (pl.col("graph") == graph.name)
    ).row(-1, named=True)
    with suppress(InputError):  # the data may be gone, or a store
        for file in find_files(Path(origin.data)) if origin else ():
            is_it = (file.collection.name, file.name) == (row["collection"], row["graph"])
            if is_it and fingerprint(file.path) == row["source"]:
                return read_graph(file.path, file.collection), ""
    return graph, (
        f"{store.folder}: keeps only some nodes of {graph.name}, and numbers of nodes count these "
        "alone. For the numbers in the program, prepare its data with `fastslow prepare`, without "
        "--hops, and give that store with --data."
    )


def read_file(path: Path, collection: str | None = None) -> Graph:
    """Read the graph of an npz file; raise InputError if the file has another format, or its path
    names another collection. `collection`: the graph's; None: as identify_file finds it."""
    if path.suffix in (*PROTOBUF, *TEXT):
        name = quote(str(path))
        shown = f"`fastslow module {name}` shows it, and " if path.suffix in PROTOBUF else ""
        raise InputError(
            f"{path}: is a program, expected an npz file. {shown}`fastslow rank {name}` ranks its "
            "configurations."
        )
    check_collection(path, collection)
    found = identify_file(path, collection)
    return read_graph(found.path, found.collection)


def _list_readers(folder: Path) -> dict[str, Callable[[], Graph]]:
    """Return, by COLLECTION:NAME of each graph of the folder or store, a function to read it."""
    if not is_store(folder):
        return {
            f"{file.collection.name}:{file.name}": partial(read_graph, file.path, file.collection)
            for file in find_files(folder)
        }
    store = Store.open(folder)
    lazy = store.load(store.graphs, GraphCache())
    names = store.graphs.select("collection", "graph").iter_rows()
    return {
        f"{collection}:{graph}": partial(lazy.__getitem__, row)
        for row, (collection, graph) in enumerate(names)
    }


def _cut_collection(key: str) -> str:
    return key.rpartition(":")[2]
