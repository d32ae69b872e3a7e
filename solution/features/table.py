"""The feature table of a graph: a row a configuration, or a distinct one."""

from typing import TYPE_CHECKING

import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph, naming
from solution.features import option_table
from solution.features.column import Feature
from solution.features.tile import tile_table

if TYPE_CHECKING:
    import polars as pl

# Tables of layouts, and frames, are imported where they are asked for: each takes long to import.


def feature_rows(graph: Graph) -> np.ndarray:
    """The columns of solution.features.columns, a row for each configuration in order.

    Where the compiler was told options, those of solution.features.option_table.

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
    """The rows of feature_rows with the names of their columns."""
    import polars as pl

    return pl.DataFrame(feature_rows(graph), schema=[f.name for f in list_features(graph)])


def list_features(graph: Graph) -> tuple[Feature, ...]:
    """The columns of feature_rows, in their order."""
    if graph.options is not None:
        return option_table.FEATURES
    from solution.features.columns import FEATURES

    return FEATURES[graph.collection.kind]


def _compute_distinct(graph: Graph) -> np.ndarray:
    first = graph.distinct.first
    if graph.options is None and graph.collection.kind == "layout":
        from solution.features.layout.layout_table import layout_rows

        return layout_rows(graph, first)  # most may be copies, of which no rows are made
    return feature_rows(graph)[first]


# Rows (distinct configs, columns) float32 in the order of Graph.distinct.
distinct_rows = PerGraph(_compute_distinct)
