"""Return the feature table of a graph, one row for each configuration or distinct configuration.

The folders `layout` and `tile` build the tables of layouts and tiles; this file builds the table of
compile options. The effect of an option depends on the program. So each choice of an option has a
column of 0 and 1, and for each part of the program this column multiplied by the part's share of
the bytes written.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from solution.domain.graph import Graph, PerGraph, naming
from solution.domain.vocabulary import OPCODE_IDS, OPTION_SETS
from solution.features.column import Feature
from solution.features.operations import num_bytes, num_operations
from solution.features.tile import tile_table

if TYPE_CHECKING:
    import polars as pl

KINDS = ("layout", "tile")  # kinds of configurations that have a table; see list_columns

# Importing layout tables and polars is slow, so functions import them.

# Parts of a program, by opcodes: an option may change the speed of a part.
PARTS = {
    "dot": ("dot",),
    "convolution": ("convolution",),
    "reduce": ("reduce", "reduce-window"),
    "min_max": ("maximum", "minimum", "clamp"),
    "transcendental": ("exponential", "tanh", "log", "logistic", "power", "rsqrt", "divide"),
    "loop": ("while",),
}
CONTEXT = (
    *(Feature(f"graph_{part}_share", "share", f"bytes written by {part}") for part in PARTS),
    Feature("graph_nodes", "log count", "nodes of the graph"),
    Feature("graph_operations", "log1p operations", "work of all nodes"),
    Feature("graph_bytes", "log1p bytes", "all output tensors"),
)


def _list_columns(options: Mapping[str, tuple[str, ...]]) -> tuple[Feature, ...]:
    names = [f"{name}_{choice}" for name, choices in options.items() for choice in choices[1:]]
    return (
        *(Feature(name, "0 or 1", "the option has this choice") for name in names),
        *CONTEXT,
        *(
            Feature(f"{name}_{part}", "share", f"the choice, times the share of {part}")
            for name in names
            for part in PARTS
        ),
    )


# {names of a target's options: columns of the tables for these options}
OPTION_FEATURES = {(*options,): _list_columns(options) for options in OPTION_SETS.values()}


def feature_rows(graph: Graph) -> np.ndarray:
    """Return the features (configs, columns) float32; list_features names the columns."""
    with naming(graph):
        if graph.options is not None:
            return _option_rows(graph)
        if graph.collection.kind == "tile":
            return tile_table.tile_rows(graph)
        from solution.features.layout.layout_table import layout_rows

        return layout_rows(graph)


def feature_table(graph: Graph) -> "pl.DataFrame":
    """Return feature_rows as a polars frame with named columns."""
    import polars as pl

    return pl.DataFrame(feature_rows(graph), schema=[f.name for f in list_features(graph)])


def list_features(graph: Graph) -> tuple[Feature, ...]:
    """Return the columns of feature_rows in their order."""
    if graph.options is not None:
        return OPTION_FEATURES[graph.option_names]
    return list_columns(graph.collection.kind)


def list_columns(kind: str) -> tuple[Feature, ...]:
    """Return the columns of the tables of a kind, "layout" or "tile", in their order."""
    if kind == "tile":
        return tile_table.FEATURES
    from solution.features.layout.layout_table import FEATURES

    return FEATURES


def _compute_distinct(graph: Graph) -> np.ndarray:
    first = graph.distinct.first
    if graph.options is None and graph.collection.kind == "layout":
        from solution.features.layout.layout_table import layout_rows

        return layout_rows(graph, first)  # skip duplicates, which may be most configurations
    return feature_rows(graph)[first]


# Rows (distinct configs, columns) float32 in the order of Graph.distinct.
distinct_rows = PerGraph(_compute_distinct)


def _option_rows(graph: Graph) -> np.ndarray:
    """Return the columns OPTION_FEATURES of a graph with options: (configs, columns) float32."""
    assert graph.options is not None
    chosen = _mark_choices(graph.options, graph.option_choices)
    context = _describe_program(graph)
    shares = context[: len(PARTS)]
    # Each choice times each share: (configs, choices x parts).
    mixed = (chosen[:, :, None] * shares).reshape(len(chosen), -1)
    rows = np.column_stack([chosen, np.tile(context, (len(chosen), 1)), mixed])
    return rows.astype(np.float32)


def _mark_choices(options: np.ndarray, known: Mapping[str, tuple[str, ...]]) -> np.ndarray:
    """Return a column (configs, choices) of 0 and 1 for each choice of each option, except for the
    defaults. `known`: {option: choices}."""
    columns = [
        options[:, option] == choice
        for option, choices in enumerate(known.values())
        for choice in range(1, len(choices))
    ]
    return np.column_stack(columns).astype(np.float64)


def _describe_program(graph: Graph) -> np.ndarray:
    """Return the columns CONTEXT (columns,) of the graph, the same for all configurations."""
    written = num_bytes(graph)
    opcodes, total = graph.node_opcodes, max(1.0, float(written.sum()))
    ids = [[OPCODE_IDS[name] for name in names] for names in PARTS.values()]
    shares = [float(written[np.isin(opcodes, each)].sum()) / total for each in ids]
    operations = float(num_operations(graph).sum())
    return np.array([*shares, np.log(graph.num_nodes), np.log1p(operations), np.log1p(total)])
