"""Write the files of a configuration that was chosen for a TPU by the compiler's estimates.

choice.json     options, layouts, estimates and what changed; read by verify.py
default.pb      the program's module as it is
chosen.pb       the module that requests the chosen layouts
arguments.npz   the program's arguments, by parameter number
in_jax.py       the options and layouts in the form that jax expects
verify.py       compares and times both programs on a machine with the TPU
"""

import hashlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.handing import CHOICE, MODULE, record_layouts
from solution.collecting.constraints import complete_layout
from solution.collecting.program_space import ProgramSpace
from solution.collecting.tpu.space import TpuSpace
from solution.programs.arguments import find_dtype, find_parameters
from solution.programs.hlo.messages import instructions
from solution.system.files import replace_file, write_bytes, write_json

DEFAULT_MODULE, ARGUMENTS, SNIPPET, SCRIPT = "default.pb", "arguments.npz", "in_jax.py", "verify.py"
FILES = (CHOICE, MODULE, DEFAULT_MODULE, ARGUMENTS, SNIPPET, SCRIPT)
# If the program's file lacks arguments, random ones are stored, provided that all arguments
# together take at most this many bytes; otherwise verify.py draws the missing ones.
MOST_DRAWN_BYTES = 256 << 20


def hand_over_estimated(
    space: ProgramSpace, config: np.ndarray, folder: Path, facts: Mapping[str, Any]
) -> list[Path]:
    """Write a configuration's files and return their paths; `facts` go into choice.json."""
    (default, _), (chosen, flags) = space.prepare(space.default), space.prepare(config)
    write_bytes(default, folder / DEFAULT_MODULE)
    write_bytes(chosen, folder / MODULE)
    arguments = _list_arguments(space)
    if arguments:
        with replace_file(folder / ARGUMENTS) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **arguments)  # types such as bfloat16 become plain bytes
    else:
        (folder / ARGUMENTS).unlink(missing_ok=True)
    layouts = record_layouts(space, config)
    record = {
        **facts,
        "program": space.program.name,
        "compiler_options": dict(flags.options),
        "layouts": layouts,
        "parameters": describe_parameters(space),
        "checksums": {
            name: hashlib.sha256(content).hexdigest()
            for name, content in ((DEFAULT_MODULE, default), (MODULE, chosen))
        },
    }
    write_json(record, folder / CHOICE)
    write_bytes(_write_snippet(space, record).encode(), folder / SNIPPET)
    write_bytes(Path(__file__).with_name(SCRIPT).read_bytes(), folder / SCRIPT)
    names = [name for name in FILES if name != ARGUMENTS or arguments]
    return [folder / name for name in names]


def identify_choice(space: TpuSpace, config: np.ndarray, target: str) -> str:
    """Return a hash of the program, the target and the configuration (sites,)."""
    layouts = space.layouts(config[None])[0]
    found = hashlib.sha256(f"{space.program.module_digest} {target}".encode())
    found.update(f"{space.flags(config).options}".encode() + layouts.tobytes())
    return found.hexdigest()[:32]


def describe_parameters(space: ProgramSpace) -> list[tuple[list[int], str]]:
    """Return the sizes and the numpy type of each parameter."""
    return [
        (list(shape.dimensions), str(find_dtype(shape, f"{space.program.name}: parameter {n}")))
        for n, shape in enumerate(find_parameters(space.program.module))
    ]


def _list_arguments(space: ProgramSpace) -> dict[str, Any]:
    """Return {parameter number: argument} to store: arguments that the program's file gives, and
    random ones for the others if all together take at most MOST_DRAWN_BYTES."""
    program = space.program
    size = sum(
        prod(sizes) * find_dtype(shape, program.name).itemsize
        for shape, (sizes, _) in zip(
            find_parameters(program.module), describe_parameters(space), strict=True
        )
    )
    given: list[np.ndarray | None] = list(program.given or [])
    if program.is_drawn and size <= MOST_DRAWN_BYTES:
        given = list(program.arguments)
    return {str(number): array for number, array in enumerate(given) if array is not None}


def _write_snippet(space: ProgramSpace, record: Mapping[str, Any]) -> str:
    """Return the text of in_jax.py: the options and layouts in the form that jax expects."""
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
    return SNIPPET_TEXT.format(
        program=record["program"],
        target=record["target"],
        options=record["compiler_options"],
        layouts="".join(rows),
    )


def _find(nodes: list[Any], number: int) -> Any:
    return next(node for node in nodes if node.id == number)


SNIPPET_TEXT = '''"""The configuration chosen for {program} on {target}, as jax takes it.

It was chosen by the compiler's estimates; run verify.py on a TPU before you use it. To use it:

    compiled = jax.jit(program).lower(*arguments).compile(compiler_options=COMPILER_OPTIONS)

and, in the program, behind the instruction of each row of LAYOUTS (or before it, for an operand):

    x = with_layout_constraint(x, Layout(major_to_minor=...))
"""

from jax.experimental.layout import Layout, with_layout_constraint

COMPILER_OPTIONS = {options!r}
# instruction (its name in jax), tensor, sizes, dimensions from major to minor
LAYOUTS = [
{layouts}]
'''
