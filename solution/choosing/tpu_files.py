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
from solution.choosing.in_jax import ESTIMATED, SNIPPET, write_snippet
from solution.collecting.program_space import ProgramSpace
from solution.collecting.tpu.space import TpuSpace
from solution.programs.arguments import find_dtype, find_parameters
from solution.system.files import replace_file, write_bytes, write_json

DEFAULT_MODULE, ARGUMENTS, SCRIPT = "default.pb", "arguments.npz", "verify.py"
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
    write_snippet(space, record, record["target"], ESTIMATED, folder)
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
