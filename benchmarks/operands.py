"""Count how often features confuse the operands of a product, or its summed dimensions.

    python -m benchmarks.operands --programs 6

Programs of all families, half of them training steps, are made by jax. Their modules say which
dimensions dots and convolutions contract; the features infer it without that, as for files that do
not say it.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import typer

from solution.collecting.families import FAMILIES, draw_settings, write_file
from solution.features.contractions import contractions
from solution.features.operations import find_operands
from solution.features.preparation import repair_padding
from solution.programs.child import Child, Limits
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.nodes import find_places
from solution.programs.program import Program, make_graph, read_programs
from solution.system.progress import track
from solution.system.terminal import output


def count_wrong(program: Program) -> dict[str, int]:
    """Return the number of a program's products, and how many have wrong features."""
    graph, places = make_graph(program, "layout:xla:random"), find_places(program.module)
    blind = repair_padding(replace(graph, summed=None))
    operands, summed = find_operands(blind), contractions(blind)
    found = {"products": 0, "wrong operands": 0, "wrong sums": 0}
    for place, instruction in enumerate(instructions(program.module)):
        if instruction.opcode not in ("dot", "convolution"):
            continue
        told = [places[operand] for operand in instruction.operand_ids]
        numbers = instruction.dot
        sums = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
        own = [set(row[row >= 0].tolist()) for row in summed[place]]
        found["products"] += 1
        found["wrong operands"] += [operands.input[place], operands.kernel[place]] != told
        found["wrong sums"] += instruction.opcode == "dot" and own != [*map(set, sums)]
    return found


def draw_programs(
    programs: int, seed: int, child: Child
) -> Iterator[tuple[str, bool, int, Program]]:
    """Yield random programs of each family, and as many training steps: the family, whether it is
    a step, its number, and the program."""
    families = [family for names in FAMILIES.values() for family in names]
    drawn = list(product(families, (False, True), range(programs)))
    with tempfile.TemporaryDirectory() as folder, track(drawn, "Reading") as tracked:
        path = Path(folder) / "program.py"
        for family, is_step, number in tracked:
            settings = draw_settings((family,), np.random.default_rng([number, seed]))
            path.write_text(write_file(settings | {"train": is_step}), encoding="utf-8")
            (program,) = read_programs(path, child)
            yield family, is_step, number, program


def main(programs: int = 6) -> None:
    """Test `programs` programs per family, and as many training steps."""
    with Child(Limits(seconds=180)) as child:
        rows = [
            {"family": family, "training": is_step, **count_wrong(program)}
            for family, is_step, _, program in draw_programs(programs, 1, child)
        ]
    table = pl.DataFrame(rows).group_by("family", "training", maintain_order=True).sum()
    with pl.Config(tbl_rows=-1):
        output.print(table)
        output.print(table.select(pl.col("products", "wrong operands", "wrong sums").sum()))


if __name__ == "__main__":
    typer.run(main)
