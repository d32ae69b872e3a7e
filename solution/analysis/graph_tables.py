"""Make printed tables of a data set's size and of the contents of one graph."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from rich.table import Table
from rich.text import Text

from solution.analysis import measures
from solution.data.summaries import aggregate
from solution.domain.graph import TIMED, Graph, warn_of_estimates
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    MAX_RANK,
    OPCODES,
    SHAPE_DIMENSIONS,
    TILE_BLOCKS,
)
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.records import Record
from solution.system.terminal import make_table

if TYPE_CHECKING:  # for annotations only: `fastslow inspect` does not lift graphs
    from solution.collecting.lifting.lift import Lifted

# name of the row that counts the graphs of all collections
EVERY = "all"
# names in published.toml of the smallest and largest published mean number of nodes
BAND = ("violation_fewest_nodes", "violation_most_nodes")
MAX_ROWS = 15
QUANTILES = (0, 0.25, 0.5, 0.75, 1)


def measure_scale(summaries: pl.DataFrame) -> pl.DataFrame:
    """Return a row of counts for each collection and, last, for all of them together.

    Args:
        summaries: the table of solution.data.summaries, a row per graph.

    Returns:
        A table with the columns collection; graphs (count); nodes, edges and configs (means per
        graph); largest (nodes of the largest graph); and pairs (number of configurations of all
        graphs).
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
    """Return the counts of measure_scale as a table, 80 columns wide."""
    table = make_table(
        "Scale: means over graphs, and pairs of a graph and a configuration",
        names=("Collection",), numbers=("Graphs", "Nodes", "Largest", "Edges", "Configs", "Pairs"),
    )  # fmt: skip
    for row in measure_scale(summaries).iter_rows(named=True):
        names = ("graphs", "nodes", "largest", "edges", "configs", "pairs")
        table.add_row(row["collection"], *(f"{row[name]:,.0f}" for name in names))
    return table


def show_summaries(summaries: pl.DataFrame) -> Table:
    """Return a table, 80 columns wide, with a row for each collection and split. The columns are
    numbers of graphs, nodes, configurations and configurable nodes, the share of duplicate
    configurations, and the spread of runtimes."""
    table = make_table(
        Text("Nodes, configs and settable (configurable) nodes: median and maximum"),
        "Equal: configurations that repeat another. Spread: slowest over fastest runtime, "
        "median; empty where there are no labels.",
        names=("Collection",),
        numbers=("Graphs", "Nodes", "Configs", "Settable", "Equal", "Spread"),
    )
    previous = None
    for row in aggregate(summaries).iter_rows(named=True):
        if row["collection"] != previous:
            table.add_row(row["collection"], style="cyan")
        previous = row["collection"]
        spread = row["spread_median"]
        table.add_row(
            f"  {row['split']}",
            f"{row['graphs']:,}",
            *(
                f"{_round_number(row[f'{name}_median'])} {_round_number(row[f'{name}_max'])}"
                for name in ("nodes", "configs", "configurable")
            ),
            f"{row['duplicates']:.0%}",
            "" if spread is None else f"{spread:.2f}",
        )
    if words := warn_of_estimates(summaries.filter("labelled")["label_source"]):
        table.caption = f"{table.caption} {words}"
    return table


def show_graph(graph: Graph) -> list[Table]:
    """Return tables of a graph: sizes, opcodes, configurable nodes or tile sizes, and runtimes."""
    opcodes = Counter(OPCODES[opcode] for opcode in graph.node_opcodes.tolist())
    tables = [_show_sizes(graph), _show_opcodes(opcodes)]
    if graph.collection.kind == "tile":
        tables.append(_show_tiles(graph))
    elif len(graph.configurable):  # a program may have no configurable node
        tables.append(_show_configurable(graph))
    if graph.runtimes is not None:
        table = make_table("What there is to gain", names=("Measure",), numbers=("Value",))
        gain = measures.gain_over_compiler(graph)
        table.add_row("(slowest - fastest) / mean", f"{measures.relative_range(graph):.3f}")
        told = "it has no label" if gain is None else f"{gain:.1%}"
        table.add_row("fastest over the compiler's default", told)
        tables += [_show_runtimes(graph), table]
    return tables


def show_records(name: str, records: Sequence[Record]) -> list[Table]:
    """Return two tables of a protobuf file: a row per record, and a row per frequent opcode."""
    opcodes = (one.opcode for record in records for one in instructions(record.module))
    return [_show_record_rows(name, records), _show_opcodes(Counter(opcodes))]


def _show_record_rows(name: str, records: Sequence[Record]) -> Table:
    kinds = Counter(record.graph.collection.kind for record in records)
    title = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    left_out = sum(record.left_out for record in records)
    estimates = warn_of_estimates(record.graph.label_source for record in records)
    table = make_table(
        Text(f"{name}: {title}"),
        "Settable: configurable nodes. Fastest: ns. Spread: slowest over fastest runtime. "
        f"{left_out:,} runs that failed or were not timed are left out. {estimates}".rstrip(),
    )
    table.add_column("Graph")
    for header in ("Nodes", "Settable", "Configs", "Fastest", "Spread"):
        table.add_column(header, justify="right", no_wrap=True)
    for record in records:
        graph, times = record.graph, record.nanoseconds
        labelled = graph.runtimes is not None
        table.add_row(
            Text(graph.name),
            f"{graph.num_nodes:,}",
            f"{len(graph.configurable):,}",
            f"{graph.num_configs:,}",
            f"{times.min():,}" if labelled else "",
            f"{times.max() / times.min():.2f}" if labelled else "",
        )
    return table


def show_guesses(name: str, lifted: "Lifted") -> Table:
    """Return a table of the guesses in a lifted program (one reconstructed from a graph). It has a
    row for each kind of guess: the number of nodes with such a guess, and the first of them."""
    opcodes = [instruction.opcode for instruction in instructions(lifted.module)]
    touched = len({node for nodes in lifted.guesses.values() for node in nodes})
    table = make_table(
        Text(f"{name}: {len(opcodes):,} nodes, {touched:,} with a guess"),
        "The graph does not say these; they were inferred from shapes, or taken so that the "
        "program costs the same.",
    )
    table.add_column("Guess")
    table.add_column("Nodes", justify="right", no_wrap=True)
    table.add_column("First", justify="right", no_wrap=True)
    for kind, nodes in sorted(lifted.guesses.items(), key=lambda item: -len(item[1])):
        if nodes:
            first = min(nodes)
            table.add_row(Text(kind), f"{len(nodes):,}", f"{first} ({opcodes[first]})")
    return table


def _show_sizes(graph: Graph) -> Table:
    title = Text(f"{graph.collection.name}:{graph.name}")
    table = make_table(title, names=("What",), numbers=("Count",))
    counts = {
        "nodes": graph.num_nodes,
        "edges": len(graph.edges),
        "configurable nodes": len(graph.configurable),
        "configurations": graph.num_configs,
        "distinct configurations": len(graph.distinct.first),
    }
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    labels = "yes" if graph.label_source == TIMED else graph.label_source
    table.add_row("labels", labels if graph.runtimes is not None else "no")
    return table


def _show_opcodes(counts: Counter[str]) -> Table:
    table = make_table("Opcodes", names=("Opcode",), numbers=("Nodes",))
    for opcode, count in counts.most_common(MAX_ROWS):
        table.add_row(Text(opcode), f"{count:,}")
    _add_rest(table, len(counts))
    return table


def _show_configurable(graph: Graph) -> Table:
    table = make_table(
        Text("Configurable nodes; of each the most frequent given layout, minor to major")
    )
    table.add_column("Node", justify="right")
    table.add_column("Opcode")
    table.add_column("Shape")
    table.add_column("Layouts", justify="right")
    for tensor in LAYOUT_TENSORS:
        table.add_column(f"{tensor.capitalize()} layout")
    book = graph.layouts
    for position, node in enumerate(graph.configurable[:MAX_ROWS]):
        layouts = book.layouts[book.starts[position] : book.starts[position + 1]]
        counts = np.bincount(book.codes[book.rows, position], minlength=len(layouts))
        given = counts * (layouts >= 0).any(axis=1)
        frequent = layouts[np.argmax(given)]
        sizes = graph.node_features[node, SHAPE_DIMENSIONS].astype(int)
        table.add_row(
            str(node),
            OPCODES[int(graph.node_opcodes[node])],
            "x".join(str(size) for size in sizes if size) or "scalar",
            str(len(layouts)),
            *(_show_layout(slots) for slots in frequent.reshape(len(LAYOUT_TENSORS), MAX_RANK)),
        )
    _add_rest(table, len(graph.configurable))
    return table


def _show_tiles(graph: Graph) -> Table:
    runtimes = graph.runtimes
    if runtimes is None:
        title, order = "Tile sizes, in the file's order", np.arange(graph.num_configs)
    else:
        title = "Tile sizes, the fastest first; runtimes over the normaliser"
        order = np.argsort(runtimes)
    tiles_of = [f"{block.capitalize()} tile" for block in TILE_BLOCKS]
    table = make_table(title, numbers=("Config",), texts=tiles_of)
    if runtimes is not None:
        table.add_column("Runtime", justify="right")
    for config in order[:MAX_ROWS]:
        tiles = [_show_tile(graph.tiles[config, b][:MAX_RANK]) for b in TILE_BLOCKS.values()]
        runtime = [] if runtimes is None else [f"{runtimes[config]:.4f}"]
        table.add_row(str(config), *tiles, *runtime)
    _add_rest(table, graph.num_configs)
    return table


def _show_runtimes(graph: Graph) -> Table:
    assert graph.runtimes is not None
    unit = "ns" if graph.collection.kind == "layout" else "over normaliser"
    of = "Runtimes" if graph.label_source == TIMED else "Estimated runtimes"
    headers = [*(f"{quantile:.0%}" for quantile in QUANTILES), "Slowest / fastest"]
    table = make_table(f"{of} ({unit})", expendable=("75%", "25%"), numbers=headers)
    values = np.quantile(graph.runtimes, QUANTILES)
    shown = [f"{value:,.0f}" if values[0] > 1000 else f"{value:.4f}" for value in values]
    table.add_row(*shown, f"{values[-1] / values[0]:.3f}")
    return table


def _round_number(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.3g}k"


def _show_layout(slots: np.ndarray) -> str:
    return " ".join(str(slot) for slot in slots if slot >= 0) or "-"


def _show_tile(sizes: np.ndarray) -> str:
    return "x".join(str(int(size)) for size in sizes if size) or "-"


def _add_rest(table: Table, count: int) -> None:
    if count > MAX_ROWS:
        table.add_row(f"and {count - MAX_ROWS:,} more")
