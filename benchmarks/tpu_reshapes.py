"""Compare the layouts chosen for reshapes that move data with those that a TPU's compiler requests.

    python -m benchmarks.tpu_reshapes [--modules 10] [--target tpu:v3]

Programs with products around random reshapes are compiled. libtpu writes into its log which layouts
each reshape requests after the first pass of layout assignment. Each type and pair of shapes counts
once.

With the extra `tpu`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from benchmarks.tpu_propagation import drop_ones
from solution.collecting.target import parse_target
from solution.collecting.tpu.libtpu import Devices, Libtpu, prepare_environment
from solution.features.propagation.tiles import Layout, choose_reshape
from solution.system.scratch import ScratchFolder
from solution.system.terminal import output, say

CHAINS = 16  # reshapes in a module
FEWEST_ROWS = {"f32": 2, "bf16": 4}  # of a tile, see tiles.find_fewest_rows
BATCHES, LENGTHS = (1, 2, 4, 8, 16), (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
HEADS, DEPTHS = (2, 3, 4, 6, 8, 12), (4, 8, 12, 16, 24, 32, 48, 64, 128)
FIRST_PASS = "Ran first pass of layout assignment"
SHAPE = r"(\w+)\[([\d,]*)\]\{([\d,]*)"
OPERAND = re.compile(r"\] SetOperandLayout : (reshape[\w.]*), operand 0 : " + SHAPE)
RESULT = re.compile(r"\] SetInstructionLayout : (reshape[\w.]*), " + SHAPE)
Key = tuple[str, tuple[int, ...], tuple[int, ...]]  # type, sizes of the operand, of the result


def compile_modules(target: str, name: str, modules: int, seed: int) -> None:
    """Compile modules of random chains product, reshape, product, with libtpu's log on stderr."""
    scratch = ScratchFolder()
    prepare_environment(scratch.path)
    os.environ.update(
        TPU_VMODULE="layout_assignment=5,tpu_layout_assignment=9",
        TPU_MIN_LOG_LEVEL="0",
        TPU_STDERR_LOG_LEVEL="0",
    )
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    compiler, generator = Libtpu(parse_target(target)), np.random.default_rng(seed)
    for _ in range(modules):
        chains = [draw_chain(generator) for _ in range(CHAINS)]
        shapes = [shape for _, inputs in chains for shape in inputs]
        given = [jax.ShapeDtypeStruct(shape, getattr(jnp, name)) for shape in shapes]

        def program(*arrays: Any, chains: Any = chains) -> list[Any]:
            return [chain(*arrays[3 * n : 3 * n + 3]) for n, (chain, _) in enumerate(chains)]

        lowered = jax.jit(program).lower(*given).compiler_ir("hlo")
        module = lowered.as_serialized_hlo_module_proto()
        compiler.compile(module, [], Devices(), None, scratch.path / "dump")
    scratch.remove()


def draw_chain(generator: np.random.Generator) -> tuple[Any, list[tuple[int, ...]]]:
    """Return a random function of three arrays with a reshape inside, and the arrays' shapes."""
    batch, length, heads, depth, inner = (
        int(generator.choice(sizes)) for sizes in (BATCHES, LENGTHS, HEADS, DEPTHS, (16, 64, 128))
    )
    whole, parts = (batch, length, heads * depth), (batch, length, heads, depth)
    split = [(batch, length, inner), (inner, heads * depth)]
    chains: list[tuple[Any, list[tuple[int, ...]]]] = [
        (lambda x, y, z: (x @ y).reshape(parts).transpose(0, 2, 1, 3) @ z,
         [*split, (batch, heads, depth, length)]),
        (lambda x, y, z: z @ (x @ y).reshape(parts).transpose(0, 2, 3, 1),
         [*split, (batch, heads, length, depth)]),
        (lambda x, y, z: (x @ y).transpose(0, 2, 1, 3).reshape(whole) @ z,
         [(batch, heads, length, inner), (batch, heads, inner, depth), (heads * depth, inner)]),
        (lambda x, y, z: abs((x @ y).reshape(batch, length * heads, depth)) @ z,
         [(batch, length, heads, inner), (inner, depth), (depth, inner)]),
        (lambda x, y, z: abs((x @ y).reshape(parts)) @ z,
         [(batch * length, inner), (inner, heads * depth), (depth, inner)]),
    ]  # fmt: skip
    return chains[int(generator.integers(len(chains)))]


def read_log(lines: Iterable[str]) -> dict[Key, tuple[Layout, Layout]]:
    """Return the layouts of operand and result that reshapes request, from libtpu's log."""
    found: dict[Key, tuple[Layout, Layout]] = {}
    operands: dict[str, re.Match[str]] = {}
    is_later = False  # past the first pass of a module
    for line in lines:
        if FIRST_PASS in line or "Before TpuLayoutAssignment" in line:
            is_later, operands = FIRST_PASS in line, {}
        elif is_later and "mandatory = true" in line:
            if match := OPERAND.search(line):
                operands[match[1]] = match
            elif (match := RESULT.search(line)) and match[1] in operands:
                read = operands[match[1]]
                key = (match[2], read_numbers(read[3]), read_numbers(match[3]))
                found[key] = (read_numbers(read[4]), read_numbers(match[4]))
    return found


def read_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 8,32,96."""
    return tuple(map(int, text.split(",")))


def main(
    modules: Annotated[int, typer.Option(help="Compiled of each type.")] = 10,
    target: str = "tpu:v3",
    seed: int = 0,
    compiled: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Compile random reshapes in two types, and print how many choices are the compiler's."""
    if compiled:
        compile_modules(target, compiled, modules, seed)
        return
    found: dict[Key, tuple[Layout, Layout]] = {}
    for name in ("float32", "bfloat16"):
        # libtpu reads the settings of its log once a process
        command = [
            *(sys.executable, "-m", "benchmarks.tpu_reshapes", "--modules", str(modules)),
            *("--target", target, "--seed", str(seed), "--compiled", name),
        ]
        done = subprocess.run(
            command, check=True, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        found |= read_log(done.stderr.splitlines())
    rows = []
    for (kind, operand, result), true in found.items():
        ours = choose_reshape((operand, result), FEWEST_ROWS[kind])
        pairs = [
            tuple(map(drop_ones, each, (operand, result))) if each else None
            for each in (ours, true)
        ]
        if pairs[0] != pairs[1]:
            rows.append((kind, str(operand), str(result), str(pairs[1]), str(pairs[0])))
    say(f"{len(found) - len(rows)} of {len(found)} reshapes request the layouts that are expected.")
    if rows:
        names = ["type", "operand", "result", "compiler", "expected"]
        with pl.Config(tbl_rows=-1, tbl_width_chars=160, fmt_str_lengths=60):
            output.print(pl.DataFrame(rows, names, orient="row"))


if __name__ == "__main__":
    typer.run(main)
