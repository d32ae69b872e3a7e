"""The feature table of a graph: a row a configuration, or a distinct one."""

import numpy as np
import polars as pl

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph, naming
from solution.features.layout.layout_table import layout_table
from solution.features.option_table import option_table
from solution.features.tile.tile_table import tile_table


def feature_table(graph: Graph) -> pl.DataFrame:
    """The columns of solution.features.columns, a row for each configuration in order.

    Where the compiler was told options, those of solution.features.option_table.
    """
    with naming(graph):
        if graph.options is not None:
            return option_table(graph)
        return (layout_table if graph.collection.kind == "layout" else tile_table)(graph)


def _compute_distinct(graph: Graph) -> np.ndarray:
    first = graph.distinct.first
    if (
        graph.options is None and graph.collection.kind == "layout"
    ):  # most may be copies, of which no rows are made
        return layout_table(graph, first).to_numpy(order="c")
    return feature_table(graph).to_numpy(order="c")[first]


# Rows (distinct configs, columns) float32 in the order of Graph.distinct.
distinct_rows = PerGraph(_compute_distinct)
