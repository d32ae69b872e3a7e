"""Return the feature table of a graph, one row for each configuration or distinct configuration."""

from typing import TYPE_CHECKING

import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph, naming
from solution.features import option_table
from solution.features.column import Feature
from solution.features.tile import tile_table

if TYPE_CHECKING:
    import polars as pl

KINDS = ("layout", "tile")  # of tables

# Importing layout tables and polars is slow, so functions import them.


def feature_rows(graph: Graph) -> np.ndarray:
    """Return the columns of list_columns, one row for each configuration in order.

    A graph of compile options has the columns of solution.features.option_table.

    Returns:
        (configs, columns) float32.
    """
    with naming(graph):
        if graph.options is not None:
            return option_table.option_rows(graph)
        if graph.collection.kind == "tile":
            return tile_table.tile_rows(graph)
        from solution.features.layout.layout_table import layout_rows

        return layout_rows(graph)


def feature_table(graph: Graph) -> "pl.DataFrame":
    """Return feature_rows as a frame with the names of the columns."""
    import polars as pl

    return pl.DataFrame(feature_rows(graph), schema=[f.name for f in list_features(graph)])


def list_features(graph: Graph) -> tuple[Feature, ...]:
    """Return the columns of feature_rows in their order."""
    if graph.options is not None:
        return option_table.FEATURES[graph.option_names]
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

        return layout_rows(graph, first)  # no rows for duplicates, which may be most configurations
    return feature_rows(graph)[first]


# Rows (distinct configs, columns) float32 in the order of Graph.distinct.
distinct_rows = PerGraph(_compute_distinct)
