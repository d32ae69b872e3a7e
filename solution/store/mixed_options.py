"""Find collections whose graphs are configured in several ways: by layouts, or by compile options.

The feature tables of layouts and of each target's compile options have different columns, so no
model can learn from graphs of several kinds, or rank them, together.
"""

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from solution.domain.graph import Graph
from solution.domain.vocabulary import OPTION_SETS
from solution.store.graph_file import read_prepared
from solution.store.store import Store
from solution.system.wording import join_names

MOST_NAMED = 3
LAYOUTS = "layouts"


def name_kind(graph: Graph) -> str:
    """Return the kind of a layout graph's configurations, such as "compile options (cpu)"."""
    if graph.options is None:
        return LAYOUTS
    targets = {(*options,): target for target, options in OPTION_SETS.items()}
    return f"compile options ({targets[graph.option_names]})"


def find_mixed(graphs: Iterable[tuple[str, str, str | Path]]) -> list[str]:
    """Return a sentence for each collection whose graphs are of several kinds.

    Args:
        graphs: the collection, the kind (see name_kind) and the file or name of each layout graph.
    """
    named: dict[str, dict[str, list[str | Path]]] = {}
    for collection, kind, name in graphs:
        named.setdefault(collection, {}).setdefault(kind, []).append(name)
    mixed = {collection: kinds for collection, kinds in named.items() if len(kinds) > 1}
    return [f"{collection}: {_describe(kinds)}" for collection, kinds in mixed.items()]


def _describe(kinds: dict[str, list[str | Path]]) -> str:
    found = "; ".join(
        f"{len(names):,} with {kind}: {join_names(names, MOST_NAMED)}"
        for kind, names in kinds.items()
    )
    return (
        f"expected graphs that are configured in one way, found {found}. A model learns from one "
        "kind of them: move the files of the others to another folder."
    )


def find_mixed_in_store(store: Store, rows: pl.DataFrame) -> list[str]:
    """Return find_mixed of the graphs in `rows` of a store's table of graphs."""
    layouts = rows.filter(pl.col("collection").str.starts_with("layout"))
    keys = layouts.select("collection", "split", "graph").iter_rows()
    paths = store.paths_of(layouts)
    return find_mixed(
        (collection, name_kind(read_prepared(path, is_checked=True)), f"{split}/{graph}")
        for (collection, split, graph), path in zip(keys, paths, strict=True)
    )
