"""Constants that a text was printed without: found, counted, drawn the same each time, and said."""

from pathlib import Path

import numpy as np
import pytest

from solution.collecting.builder import Builder
from solution.collecting.child import Compile, Open
from solution.collecting.labelling import Workers
from solution.collecting.tiles import TileSpace
from solution.programs.left_out import FIELDS
from solution.programs.program import Program, read_programs
from solution.serving.reading import read_questions
from tests.conftest import FastSlow

# In the text of XLA, by the numbers of its PrimitiveType.
NAMES = {1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
         10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2",
         20: "f8e4m3fn", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 28: "f8e4m3",
         29: "f8e3m4"}  # fmt: skip
ELIDED = ("constant-left-out/elided.hlo", "constant-left-out-of-stablehlo/elided.mlir")
PLAIN = "HloModule m\nENTRY e {{ ROOT c = {kind}[3,5] constant({{...}}) }}\n"


def read(path: Path, workers: Workers) -> Program:
    (program,) = read_programs(path, workers.compiling)
    return program


@pytest.mark.parametrize(("name", "numbers"), [(ELIDED[0], "3,360"), (ELIDED[1], "65,536")])
def test_they_are_counted_and_said(name: str, numbers: str, cases: Path, workers: Workers) -> None:
    program = read(cases / name, workers)
    opcodes = [i.opcode for c in program.module.computations for i in c.instructions]
    assert sorted(opcodes) == ["constant", "dot", "parameter"]
    assert "1 constant " in program.notes[0] and numbers in program.notes[0]
    (question,) = read_questions(cases / name)
    assert question.notes == program.notes
    assert question.graph.num_nodes == 3


def test_rank_says_it_in_a_line(fastslow: FastSlow, cases: Path) -> None:
    done = fastslow("rank", cases / ELIDED[0])
    assert any("1 constant " in line and "3,360" in line for line in done.stdout.splitlines())


def test_a_program_is_the_same_whatever_was_read_before(cases: Path, workers: Workers) -> None:
    first = read(cases / ELIDED[0], workers).digest
    workers.compiling.end()
    assert read(cases / ELIDED[1], workers).digest != first
    assert read(cases / ELIDED[0], workers).digest == first


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_numbers_of_each_type_are_drawn(kind: int, workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "mine.hlo"
    path.write_text(PLAIN.format(kind=NAMES[kind]))
    program = read(path, workers)
    assert len(workers.compiling.ask(Open(program.plain, [])).executable) > 0
    assert read(path, workers).digest == program.digest


def test_results_differ_where_numbers_do(cases: Path, workers: Workers) -> None:
    """With the counter that the compiler fills in all are 0, and every tile agrees."""
    program = read(cases / ELIDED[0], workers)
    builder, space = Builder(workers.compiling, program), TileSpace(program)
    builder.open()
    wide = next(values for values in space.grid if values[2] == 4 and values[0] > 1)
    status, note, _ = builder.build(Compile(*space.prepare(np.asarray(wide))))
    assert status == "wrong", note


def test_a_tuple_and_others_of_one_module(workers: Workers, tmp_path: Path) -> None:
    text = (
        'HloModule m\nENTRY e {\n  c = f32[3,5]{1,0} constant({...}), metadata={op_name="c"}\n'
        "  d = f32[3,5]{1,0} constant({...})\n  ROOT s = f32[3,5]{1,0} add(c, d)\n}\n"
    )
    (tmp_path / "two.hlo").write_text(text)
    program = read(tmp_path / "two.hlo", workers)
    assert "2 constants " in program.notes[0] and "30 numbers" in program.notes[0]
    drawn = [i.literal.SerializeToString() for c in program.module.computations
             for i in c.instructions if i.opcode == "constant"]  # fmt: skip
    assert len(set(drawn)) == 2
