"""Write a search's result: files for the compiler, a description of the changes, a plot."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.in_jax import SNIPPET, TIMED, write_snippet
from solution.choosing.journal import Trial
from solution.collecting.program_space import ProgramSpace
from solution.collecting.target import CPU
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.serving.words import SAME, SHOWN, describe_options, list_given, spell
from solution.system.files import write_bytes, write_json
from solution.system.pictures import save_figure
from solution.system.wording import join_names

CHOICE, MODULE = "choice.json", "chosen.pb"
FILES = (CHOICE, MODULE, SNIPPET)
# maximum number of opcodes that `describe_changes` names
CHANGED = 4
# Opcodes that `describe_changes` counts, because layouts and library calls change their numbers.
# Instructions with other opcodes may only have moved between fusions.
TELLING = ("copy", "transpose", "bitcast", "fusion", "custom-call", "call", "dot", "convolution")


def describe_choice(space: ProgramSpace, config: np.ndarray) -> str:
    """Describe a configuration (sites,) in words."""
    options = space.options(config)
    words = [describe_options(options, space.option_choices)] if options.any() else []
    tile = space.tile(config)
    if tile is not None:
        words.append("tile {}:{}:{} vectors".format(*tile.tolist()))
    layouts = record_layouts(space, config)
    if layouts:
        named = [f"{one['opcode']} {one['node']} {spell(one['tensor'], one['minor_to_major'])}"
                 for one in layouts]  # fmt: skip
        words.append(f"layouts of {join_names(named, SHOWN)}")
    return "; ".join(words) or SAME


def record_layouts(space: ProgramSpace, config: np.ndarray) -> list[dict[str, Any]]:
    """Return a record for each tensor whose layout is set, as `choice.json` stores them."""
    program = space.program
    layouts = space.layouts(config[None])[0]
    nodes = list(instructions(program.module))
    return [
        {"node": node, "opcode": nodes[node].opcode, "name": nodes[node].name, "tensor": tensor,
         "minor_to_major": order}
        for pair in zip(program.configurable.tolist(), layouts, strict=True)
        for node, tensor, order in list_given(*pair)
    ]  # fmt: skip


def hand_over(
    space: ProgramSpace, config: np.ndarray, folder: Path, facts: dict[str, Any]
) -> tuple[Path, ...]:
    """Write three files and return their paths. `choice.json` has the layouts, the options for
    `lowered.compile(compiler_options=...)`, those for `--xla_backend_extra_options` in XLA_FLAGS,
    and `facts`. `chosen.pb` is the module with the layouts, for `fastslow collect` and XLA's
    tools. `in_jax.py` has the options and layouts in the form that jax expects."""
    module, flags = space.prepare(config)
    record = {
        "compiler_options": dict(flags.options),
        "xla_backend_extra_options": dict(flags.backend),
        "layouts": record_layouts(space, config),
        **facts,
    }
    write_json(record, folder / CHOICE)
    write_bytes(module, folder / MODULE)
    return folder / CHOICE, folder / MODULE, write_snippet(space, record, CPU, TIMED, folder)


def take_back(folder: Path, *names: str) -> None:
    """Delete an earlier result's files, called `names`, from a folder if they exist."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def describe_changes(before: bytes, after: bytes) -> str:
    """Describe which opcodes the module `after` has more or less often than the module `before`;
    both are serialized."""
    first, second = _count(before), _count(after)
    changed = [name for name in TELLING if first[name] != second[name]]
    if not changed:
        return "The compiled program has the same instructions, which are computed differently."
    words = [_compare_counts(name, first[name], second[name]) for name in changed[:CHANGED]]
    return f"The compiled program has {', '.join(words)}."


def _compare_counts(opcode: str, before: int, after: int) -> str:
    number = abs(after - before)
    noun = "library call" if opcode == "custom-call" else opcode
    if number > 1:
        noun = "copies" if opcode == "copy" else f"{noun}s"
    return f"{number} {'more' if after > before else 'fewer'} {noun} ({before} to {after})"


def _count(module: bytes) -> Counter[str]:
    return Counter(i.opcode for i in instructions(MESSAGES["Module"].FromString(module)))


def draw_search(
    trials: Sequence[Trial],
    ratios: np.ndarray,
    title: str,
    path: Path,
    quantity: str = "time",
    done: str = "measured",
) -> None:
    """Plot, as PNG, each trial's time or memory divided by the default's (`ratios` (trials,), NaN:
    failed), and the best ratio so far. `quantity` and `done` are words for the labels."""
    from matplotlib.figure import Figure  # slow to import

    best = np.fmin.accumulate(np.where(np.isfinite(ratios), ratios, np.inf))
    best = np.where(np.isfinite(best), best, np.nan)
    seconds = np.cumsum([trial.seconds for trial in trials])
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for panel, along, label in (
        (axes[0], np.arange(1, len(trials) + 1), f"configurations {done}"),
        (axes[1], seconds, "seconds"),
    ):
        panel.plot(along, ratios, "o", markersize=3, alpha=0.5, label=done)
        panel.step(along, best, where="post", label="best so far")
        panel.axhline(1.0, linestyle=":", color="gray", label="the compiler's default")
        panel.set(xlabel=label)
    axes[0].set(ylabel=f"{quantity} over the default's")
    axes[0].legend(fontsize=8)
    figure.suptitle(title)
    save_figure(figure, path)
