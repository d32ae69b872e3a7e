"""Write a chosen configuration as a Python file, in the form in which jax takes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solution.collecting.constraints import complete_layout
from solution.collecting.program_space import ProgramSpace
from solution.programs.hlo.messages import instructions
from solution.system.files import write_bytes

SNIPPET = "in_jax.py"
ESTIMATED = "It was chosen by the compiler's estimates; run verify.py on a TPU before you use it."
TIMED = "It was timed beside the program as it is; choice.json has the gain."
BEFORE = """
and, before jax is imported, because only the environment has these options:

    os.environ["XLA_FLAGS"] = XLA_FLAGS
"""


def write_snippet(
    space: ProgramSpace, record: Mapping[str, Any], target: str, how: str, folder: Path
) -> Path:
    """Write in_jax.py and return its path. `record`: the content of choice.json. `how`: a sentence
    on how the configuration was chosen."""
    nodes = list(instructions(space.program.module))
    rows = []
    for one in record["layouts"]:
        node = nodes[one["node"]]
        operand = {"output": None, "input": 0, "kernel": 1}[one["tensor"]]
        shape = node.shape if operand is None else _find(nodes, node.operand_ids[operand]).shape
        sizes = list(shape.dimensions)
        order = tuple(complete_layout(one["minor_to_major"], len(sizes))[::-1])
        source = node.metadata.op_name or node.name
        rows.append(f"    ({source!r}, {one['tensor']!r}, {tuple(sizes)!r}, {order!r}),\n")
    backend = record.get("xla_backend_extra_options", {})
    listed = ",".join(f"{name}={value}" for name, value in backend.items())
    flags = f"--xla_backend_extra_options={listed}" if backend else ""
    text = TEXT.format(
        program=space.program.name,
        target=target,
        how=how,
        before=BEFORE if flags else "",
        flags=f"XLA_FLAGS = {flags!r}\n" if flags else "",
        options=record["compiler_options"],
        layouts="".join(rows),
    )
    write_bytes(text.encode(), folder / SNIPPET)
    return folder / SNIPPET


def _find(nodes: list[Any], number: int) -> Any:
    return next(node for node in nodes if node.id == number)


TEXT = '''"""The configuration chosen for {program} on {target}, as jax takes it.

{how} To use it:

    compiled = jax.jit(program).lower(*arguments).compile(compiler_options=COMPILER_OPTIONS)
{before}
and, in the program, behind the instruction of each row of LAYOUTS (or before it, for an operand):

    x = with_layout_constraint(x, Layout(major_to_minor=...))
"""

from jax.experimental.layout import Layout, with_layout_constraint

COMPILER_OPTIONS = {options!r}
{flags}# instruction (its name in jax), tensor, sizes, dimensions from major to minor
LAYOUTS = [
{layouts}]
'''
