"""Count how large a data set is, by collection."""

import polars as pl
from rich.table import Table

from solution.system.terminal import make_table

EVERY = "all"
BAND = ("violation_fewest_nodes", "violation_most_nodes")  # names in published.toml


def measure_scale(summaries: pl.DataFrame) -> pl.DataFrame:
    """Return a row of counts for each collection and, last, for all of them together.

    Args:
        summaries: the table of solution.data.scan, a row per graph.

    Returns:
        The columns collection; graphs (count); nodes, edges and configs (means per graph); largest
        (the most nodes); and pairs (of a graph and a configuration).
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
    """Return a table, 80 columns wide, with a row for each collection and one for all."""
    table = make_table("Scale: means over graphs, and pairs of a graph and a configuration")
    table.add_column("Collection", no_wrap=True)
    for header in ("Graphs", "Nodes", "Largest", "Edges", "Configs", "Pairs"):
        table.add_column(header, justify="right", no_wrap=True)
    for row in measure_scale(summaries).iter_rows(named=True):
        names = ("graphs", "nodes", "largest", "edges", "configs", "pairs")
        table.add_row(row["collection"], *(f"{row[name]:,.0f}" for name in names))
    return table
