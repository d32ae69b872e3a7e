"""How large a data set is: counts of each collection."""

import polars as pl
from rich.table import Table

from solution.system.terminal import make_table

EVERY = "all"
BAND = ("violation_fewest_nodes", "violation_most_nodes")  # names in published.toml


def measure_scale(summaries: pl.DataFrame) -> pl.DataFrame:
    """Counts of each collection and, in the last row, of all of them.

    Args:
        summaries: of solution.data.scan, a row a graph.

    Returns:
        collection, graphs, nodes and edges (means), largest (nodes), configs (mean), and pairs: of
        a graph and a configuration.
    """
    counts = (
        pl.len().alias("graphs"),
        pl.col("nodes", "edges", "configs").mean(),
        pl.col("nodes").max().alias("largest"),
        pl.col("configs").sum().alias("pairs"),
    )
    parts = summaries.group_by("collection", maintain_order=True).agg(*counts)
    whole = summaries.select(pl.lit(EVERY).alias("collection"), *counts)
    return pl.concat([parts, whole.select(parts.columns)])


def show_scale(summaries: pl.DataFrame) -> Table:
    """A row for each collection, and one for all; 80 columns wide."""
    table = make_table("Scale: means over graphs, and pairs of a graph and a configuration")
    table.add_column("Collection", no_wrap=True)
    for header in ("Graphs", "Nodes", "Largest", "Edges", "Configs", "Pairs"):
        table.add_column(header, justify="right", no_wrap=True)
    for row in measure_scale(summaries).iter_rows(named=True):
        names = ("graphs", "nodes", "largest", "edges", "configs", "pairs")
        table.add_row(row["collection"], *(f"{row[name]:,.0f}" for name in names))
    return table
