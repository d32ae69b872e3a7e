"""Write a chosen configuration as files for the compiler: options, layouts, a module."""

from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.program_space import ProgramSpace
from solution.serving.words import SAME, SHOWN, describe_options, list_given, spell
from solution.system.files import replace_file, write_json
from solution.system.wording import join_names

CHOICE, MODULE = "choice.json", "chosen.pb"


def describe_choice(chosen: ProgramSpace, choices: np.ndarray) -> str:
    """Describe a configuration (sites,) in words."""
    options = chosen.options(choices)
    words = [describe_options(options)] if options.any() else []
    tile = chosen.tile(choices)
    if tile is not None:
        words.append("tile {}:{}:{} vectors".format(*tile.tolist()))
    layouts = record_layouts(chosen, choices)
    if layouts:
        named = [f"{one['opcode']} {one['node']} {spell(one['tensor'], one['minor_to_major'])}"
                 for one in layouts]  # fmt: skip
        words.append(f"layouts of {join_names(named, SHOWN)}")
    return "; ".join(words) or SAME


def record_layouts(chosen: ProgramSpace, choices: np.ndarray) -> list[dict[str, Any]]:
    """Return the tensors whose layouts are set, in the form of `choice.json`."""
    program = chosen.program
    layouts = chosen.layouts(choices[None])[0]
    nodes = [i for c in program.module.computations for i in c.instructions]
    asked = [list_given(*pair) for pair in zip(program.configurable.tolist(), layouts, strict=True)]
    return [
        {"node": node, "opcode": nodes[node].opcode, "name": nodes[node].name, "tensor": tensor,
         "minor_to_major": order}
        for own in asked for node, tensor, order in own
    ]  # fmt: skip


def hand_over(
    chosen: ProgramSpace, choices: np.ndarray, folder: Path, facts: dict[str, Any]
) -> tuple[Path, Path]:
    """Write `choice.json` and `chosen.pb`; return their paths.

    `choice.json` has the options for `lowered.compile(compiler_options=...)`, the options for
    `--xla_backend_extra_options` in XLA_FLAGS, and the layouts. `chosen.pb` is the module with the
    chosen layouts, which `fastslow collect` and XLA's tools can read.
    """
    module, flags = chosen.prepare(choices)
    record = {
        "compiler_options": dict(flags.options),
        "xla_backend_extra_options": dict(flags.backend),
        "layouts": record_layouts(chosen, choices),
        **facts,
    }
    write_json(record, folder / CHOICE)
    with replace_file(folder / MODULE) as temporary:
        temporary.write_bytes(module)
    return folder / CHOICE, folder / MODULE


def take_back(folder: Path, *others: str) -> None:
    """Delete the two files of an earlier result and the files `others`, so that no stale one
    stays."""
    for name in (CHOICE, MODULE, *others):
        (folder / name).unlink(missing_ok=True)
