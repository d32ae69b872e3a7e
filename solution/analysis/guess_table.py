"""Make a table of the guesses that were needed to write a graph back as a program."""

from rich.table import Table
from rich.text import Text

from solution.collecting.lifting.lift import Lifted
from solution.programs.hlo.messages import instructions
from solution.system.terminal import make_table


def show_guesses(name: str, lifted: Lifted) -> Table:
    """Return a table with a row for each kind of guess: the number of nodes, and the first one."""
    opcodes = [instruction.opcode for instruction in instructions(lifted.module)]
    touched = len({node for nodes in lifted.guesses.values() for node in nodes})
    table = make_table(
        Text(f"{name}: {len(opcodes):,} nodes, {touched:,} with a guess"),
        "The graph does not say these; they were inferred from shapes, or taken so that the "
        "program costs the same.",
    )
    table.add_column("Guess", overflow="fold")
    table.add_column("Nodes", justify="right", no_wrap=True)
    table.add_column("First", justify="right", no_wrap=True)
    for kind, nodes in sorted(lifted.guesses.items(), key=lambda item: -len(item[1])):
        if nodes:
            first = min(nodes)
            table.add_row(Text(kind), f"{len(nodes):,}", f"{first} ({opcodes[first]})")
    return table
