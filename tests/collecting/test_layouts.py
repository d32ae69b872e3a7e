"""Requested layouts are set, and change only the time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.collecting.child import Compile, Compiled, Optimise
from solution.collecting.constraints import constrain, find_ranks
from solution.collecting.cpu import Builder, Workers
from solution.collecting.program_space import LAYOUTS, make_collected_space
from solution.collecting.space import draw_new, name_config
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.hlo.nodes import read_nodes
from solution.programs.portable import make_portable
from solution.programs.program import Program
from tests.made import modules
from tests.made.timed import read_text


def unset(count: int) -> np.ndarray:
    return np.full((count, 3, 6), -1, np.int8)


def constraints(module: Any) -> list[Any]:
    return [i for i in instructions(module) if i.custom_call_target == "LayoutConstraint"]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_constraints_leave_the_instructions_and_edges_of_a_program(seed: int) -> None:
    generator, module = np.random.default_rng(seed), modules.make_module()
    program, layouts = Program("p", module, []), unset(2)
    for node, tensor in np.argwhere(find_ranks(module, program.configurable) > 0):
        if generator.random() < 0.5:
            layouts[node, tensor, :2] = generator.permutation(2)
    changed = MESSAGES["Module"].FromString(constrain(module, program.configurable, layouts))
    behind = {i.id: i.operand_ids[0] for i in constraints(changed)}
    assert len(behind) == (layouts[..., 0] >= 0).sum()

    def origin(number: int) -> int:
        return origin(behind[number]) if number in behind else number

    kept = [i for i in instructions(changed) if i.id not in behind]
    assert [i.id for i in kept] == [i.id for i in instructions(module)]
    for found, expected in zip(kept, instructions(module), strict=True):
        assert [origin(o) for o in found.operand_ids] == list(expected.operand_ids)
    read_nodes(changed)  # every id is there, once


def test_random_configurations_are_new_and_permutations(dense: Program) -> None:
    space = make_collected_space(dense, LAYOUTS)
    for parents in (None, space.default[None]):
        drawn = draw_new(space, np.random.default_rng(0), 50, {name_config(space.default)}, parents)
        assert len({name_config(values) for values in drawn}) == len(drawn) > 30
        ranks = find_ranks(dense.module, dense.configurable)
        for layouts in space.layouts(drawn):
            for layout, rank in zip(layouts.reshape(-1, 6), ranks.ravel(), strict=True):
                assert sorted(layout[layout >= 0]) in ([], list(range(rank)))


def test_layouts_change_the_executable_and_not_its_results(
    workers: Workers, dense: Program
) -> None:
    builder, space = Builder(workers.compiling, dense), make_collected_space(dense, LAYOUTS)
    plain = builder.open()
    drawn = draw_new(space, np.random.default_rng(1), 4, set())
    for values in drawn:
        status, note, compiled = builder.build(Compile(*space.prepare(values)))
        assert (status, note) == ("sound", "")
        assert isinstance(compiled, Compiled)
        assert compiled.executable != plain.executable


NESTED = """
import jax
import jax.numpy as jnp
import numpy as np

@jax.jit
def program(x, w):
    return x + x @ w

arguments = (np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
"""


def test_layouts_are_set_inside_a_function_that_the_program_calls(
    workers: Workers, tmp_path: Path
) -> None:
    """XLA distinguishes instructions of a computation by the lower half of their ids alone."""
    program = read_text(NESTED, tmp_path / "nested.py", workers)
    assert len(program.module.computations) > 1
    builder, space = Builder(workers.compiling, program), make_collected_space(program, LAYOUTS)
    builder.open()
    for values in draw_new(space, np.random.default_rng(1), 4, set()):
        assert builder.build(Compile(*space.prepare(values)))[:2] == ("sound", "")


def test_a_rejected_configuration_is_a_status(workers: Workers, dense: Program) -> None:
    builder = Builder(workers.compiling, dense)
    status, note, _ = builder.build(Compile(dense.plain, Flags((("xla_cpu_no_such", True),))))
    assert status == "refused"
    assert "xla_cpu_no_such" in note
    assert builder.build(Compile(dense.plain, Flags()))[0] == "sound"


@pytest.mark.parametrize("left_out", ["schedule", "input_output_alias", "buffer_donor"])
def test_fields_of_one_backend_are_removed(left_out: str) -> None:
    module = modules.make_module()
    if left_out == "schedule":
        module.schedule.SetInParent()
    else:
        setattr(module, left_out, b"\x08\x01")
    assert left_out in {field.name for field, _ in module.ListFields()}
    assert left_out not in {field.name for field, _ in make_portable(module).ListFields()}


THREE = """
import numpy as np
from jax import numpy as jnp

def program(x, *weights):
    made = jnp.tanh(x)
    return [made @ each for each in weights]

arguments = (np.ones((8, 16, 64), np.float32), *(np.ones((64, 64), np.float32) for _ in range(3)))
"""


def test_each_reader_of_a_tensor_gets_its_requested_layout(
    workers: Workers, tmp_path: Path
) -> None:
    """The compiler merges custom calls that differ only in the layouts of their results."""
    program = read_text(THREE, tmp_path / "three.py", workers)
    space = make_collected_space(program, LAYOUTS)
    asked = [(0, 1, 2), (1, 0, 2), (1, 2, 0)]
    layouts = space.to_array(space.default)
    for node, layout in enumerate(asked):
        layouts[node, 1, :3] = layout
    compiled = workers.compiling.ask(Optimise(*space.prepare(space.from_array(layouts))))
    module = MESSAGES["Module"].FromString(compiled)
    found = {tuple(i.shape.layout.minor_to_major) for i in instructions(module)}
    assert found >= set(asked)
