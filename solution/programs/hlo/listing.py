"""Print the contents of a protobuf file of modules."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from solution.domain.labels import warn_of_estimates
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.records import Record
from solution.system.terminal import make_table

MAX_ROWS = 15


def show_records(name: str, records: Sequence[Record]) -> list[Table]:
    """Print a row per record of the file, then the opcodes of all records; 80 columns wide."""
    return [_show_graphs(name, records), _show_opcodes(records)]


def _show_graphs(name: str, records: Sequence[Record]) -> Table:
    kinds = Counter(record.graph.collection.kind for record in records)
    title = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    left_out = sum(record.left_out for record in records)
    estimates = warn_of_estimates(record.graph.label_source for record in records)
    table = make_table(
        Text(f"{name}: {title}"),
        "Settable: configurable nodes. Fastest: ns. Spread: slowest over fastest runtime. "
        f"{left_out:,} runs that failed or were not timed are left out. {estimates}".rstrip(),
    )
    table.add_column("Graph", overflow="fold")
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


def _show_opcodes(records: Sequence[Record]) -> Table:
    counts = Counter(
        instruction.opcode for record in records for instruction in instructions(record.module)
    )
    table = make_table(Text("Opcodes"))
    table.add_column("Opcode")
    table.add_column("Nodes", justify="right")
    for opcode, count in counts.most_common(MAX_ROWS):
        table.add_row(Text(opcode), f"{count:,}")
    others = counts.total() - sum(count for _, count in counts.most_common(MAX_ROWS))
    if others:
        table.add_row(f"{len(counts) - MAX_ROWS} others", f"{others:,}")
    return table
