"""How large a data set is, beside what documents say of TpuGraphs and of the data before it."""

import polars as pl
from matplotlib.figure import Figure
from rich.table import Table

from solution.analysis.data_pictures import COLOURS
from solution.analysis.published_numbers import read_published, tell
from solution.system.terminal import make_table

EVERY = "all"
BAND = ("violation_fewest_nodes", "violation_most_nodes")  # names in published.toml
REPORTED = ("study_pairs", *BAND, "blog_graphs", "blog_nodes")


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
    table.caption = f"What is reported of TpuGraphs: {tell(*REPORTED)}."
    return table


def draw_scale(summaries: pl.DataFrame) -> Figure:
    """A point a graph, its nodes and configurations; a band for the means that are reported."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    low, high = (read_published().numbers[name].value for name in BAND)
    axes.axhspan(low, high, color="0.85", lw=0, label="means of TpuGraphs' layouts, as reported")
    for name, colour in COLOURS.items():
        own = summaries.filter(pl.col("collection") == name)
        if len(own):
            axes.scatter(own["configs"], own["nodes"], s=16, alpha=0.6, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("configurations")
    axes.set_ylabel("nodes")
    axes.set_title(f"Scale: {len(summaries):,} graphs, a point each")
    axes.legend(fontsize=7, frameon=False)
    return figure
