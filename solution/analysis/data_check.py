"""Find the problems that `check` reports: defective files, impossible layouts, copied graphs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from solution.data.folders import GraphFile
from solution.data.npz import fingerprint
from solution.data.parallel_files import map_files
from solution.data.summaries import SCHEMA, read_labelled, summarise
from solution.serving.possible import describe_impossible
from solution.store.graph_file import read_prepared
from solution.store.store import Store, find_mixed, name_kind
from solution.system.errors import InputError
from solution.system.progress import track
from solution.system.wording import count

KEYS = ("collection", "split", "graph")


@dataclass(frozen=True)
class _Sound:
    """A file without defects: its summary, hash, kind of configurations and impossible layouts."""

    path: Path
    # the summary, and as "source" the hash of solution.data.npz.fingerprint
    row: dict[str, Any]
    # kind of the graph's configurations (layouts, or compile options of a target), as
    # solution.store.store.name_kind returns it
    kind: str
    odd: str  # a sentence about a layout that no tensor can have; empty if there is none


def check_files(files: Sequence[GraphFile]) -> tuple[pl.DataFrame, list[str], list[str]]:
    """Read every file once, and collect its defects.

    Returns:
        A table with a row per file without defects: the columns of solution.data.summaries, and the
        hash of the file in the column "source". A list of messages: one for each defective file,
        and one for each collection that mixes kinds of configurations, so that no model can learn
        from it.
        A list of sentences, one for each file with a layout that no tensor can have.
    """
    results = map_files(_check_file, files, "Checking files")
    sound = [result for result in results if not isinstance(result, str)]
    defects = [result for result in results if isinstance(result, str)]
    summaries = pl.DataFrame([one.row for one in sound], {**SCHEMA, "source": pl.String()})
    mixed = find_mixed(
        (one.row["collection"], one.kind, one.path)
        for one in sound
        if one.row["collection"].startswith("layout")
    )
    return summaries, defects + mixed, [one.odd for one in sound if one.odd]


def find_impossible(store: Store) -> list[str]:
    """Return a sentence for each file with a layout that no tensor can have. The caller has checked
    the `store`, so checksums are not compared again."""
    found = []
    with track(store.paths(), "Checking layouts") as paths:
        for path in paths:
            if words := describe_impossible(read_prepared(path, is_checked=True)):
                found.append(f"{path}: {words}")
    return found


def find_equal_graphs(graphs: pl.DataFrame) -> list[str]:
    """Return a list with a sentence about copies of graphs; an empty list if there are no copies. A
    copy under another name distorts scores, and file names do not show it. `graphs`: a table with
    the columns collection, split, graph and source (a hash), as a store has them."""
    equal = graphs.filter(pl.col("source").is_duplicated())
    if equal.is_empty():
        return []
    first = equal.filter(source=equal["source"][0])
    shown = " and ".join(" ".join(row) for row in first.select(KEYS).head(2).iter_rows())
    copies = len(equal) - equal["source"].n_unique()
    verb = "is a copy" if copies == 1 else "are copies"
    return [
        f"{count(copies, 'graph')} {verb} of others under another name, such as {shown}. Scores "
        "mean less if a model was trained on a copy of a graph that it is scored on."
    ]


def _check_file(file: GraphFile) -> _Sound | str:
    try:
        graph = read_labelled(file)
    except InputError as error:
        return str(error)
    words = describe_impossible(graph)
    odd = f"{file.path}: {words}" if words else ""
    row = {**asdict(summarise(graph, file.split)), "source": fingerprint(file.path)}
    return _Sound(file.path, row, name_kind(graph), odd)
