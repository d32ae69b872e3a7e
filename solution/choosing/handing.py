"""Hand what was chosen back to the compiler: options, layouts, a module, as files."""

from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.program_space import ProgramSpace
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, OPTION_CHOICES
from solution.system.files import replace_file, write_json

CHOICE, MODULE = "choice.json", "chosen.pb"


def describe_choice(chosen: ProgramSpace, choices: np.ndarray) -> str:
    """A configuration (sites,) in words."""
    words = [
        f"{name} {options[choice]}"
        for (name, options), choice in zip(
            OPTION_CHOICES.items(), chosen.options(choices).tolist(), strict=True
        )
        if choice
    ]
    tile = chosen.tile(choices)
    if tile is not None:
        words.append("tile {}:{}:{} vectors".format(*tile.tolist()))
    layouts = list_layouts(chosen, choices)
    if layouts:
        shown = [f"{one['opcode']} {one['node']} {one['tensor']} {one['minor_to_major']}"
                 for one in layouts[:3]]  # fmt: skip
        more = f" and {len(layouts) - 3} more" if len(layouts) > 3 else ""
        words.append("layouts of " + ", ".join(shown) + more)
    return "; ".join(words) or "as the compiler has it"


def list_layouts(chosen: ProgramSpace, choices: np.ndarray) -> list[dict[str, Any]]:
    """The tensors whose layouts are set: node, opcode, tensor, minor to major."""
    layouts = chosen.layouts(choices[None])[0]
    nodes = [i for c in chosen.program.module.computations for i in c.instructions]
    found = []
    for place, tensor in np.argwhere(layouts[:, :, 0] != LAYOUT_UNSET).tolist():
        node = int(chosen.program.configurable[place])
        own = layouts[place, tensor]
        found.append({
            "node": node, "opcode": nodes[node].opcode, "name": nodes[node].name,
            "tensor": LAYOUT_TENSORS[tensor],
            "minor_to_major": own[own != LAYOUT_UNSET].tolist(),
        })  # fmt: skip
    return found


def hand_over(
    chosen: ProgramSpace, choices: np.ndarray, folder: Path, facts: dict[str, Any]
) -> tuple[Path, Path]:
    """Write the two files; their paths.

    `choice.json` has the options for `lowered.compile(compiler_options=...)`, those for
    `--xla_backend_extra_options`, and the layouts; `chosen.pb` is the module with the layouts asked
    for, which `fastslow collect` and XLA's tools read.
    """
    module, flags = chosen.prepare(choices)
    record = {
        "compiler_options": dict(flags.options),
        "xla_backend_extra_options": dict(flags.backend),
        "layouts": list_layouts(chosen, choices),
        **facts,
    }
    write_json(record, folder / CHOICE)
    with replace_file(folder / MODULE) as temporary:
        temporary.write_bytes(module)
    return folder / CHOICE, folder / MODULE


def take_back(folder: Path) -> None:
    """Remove the two files of an earlier verdict: what lies there is the last one's."""
    for name in (CHOICE, MODULE):
        (folder / name).unlink(missing_ok=True)
