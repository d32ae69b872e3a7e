"""Operands and sums of products, as features find them and as modules of jax have them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from solution.collecting.collect import Workers
from solution.collecting.families import draw_settings, write_file
from solution.collecting.program import make_graph, read_programs
from solution.data.hlo.messages import instructions
from solution.data.hlo.nodes import find_places
from solution.features.contractions import contractions
from solution.features.operands import find_operands
from solution.features.padding import repair_padding

ENCODER = '''
"""A training step of an encoder with square weights, whose heads have as many numbers as rows."""
import jax
import numpy as np
from jax import numpy as jnp

random = np.random.default_rng(0)

def draw(*shape):
    return random.normal(size=shape).astype(np.float32)

BATCH, ROWS, WIDTH, HEADS = 4, 16, 64, 4
SIZES = {**dict.fromkeys("qkvo", (WIDTH, WIDTH)), "up": (WIDTH, 256), "down": (256, WIDTH)}
weights = [{name: draw(*sizes) for name, sizes in SIZES.items()} for _ in range(2)]

def split(x):
    return x.reshape(BATCH, ROWS, HEADS, -1).transpose(0, 2, 1, 3)

def forward(weights, x):
    for own in weights:
        scores = jnp.einsum("bhqd,bhkd->bhqk", split(x @ own["q"]), split(x @ own["k"]))
        mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), split(x @ own["v"]))
        x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ own["o"]
        x = x + jax.nn.gelu(x @ own["up"]) @ own["down"]
    return (x**2).mean()

program = jax.grad(forward)
arguments = (weights, draw(BATCH, ROWS, WIDTH))
'''


def write_step(family: str) -> str:
    settings = draw_settings((family,), np.random.default_rng(1))
    return write_file(settings | {"train": True, "depth": 2})


@pytest.mark.parametrize("family", ["encoder", "mlp", "gnn", "mixer", "convnet", "transformer"])
def test_of_training_steps_shapes_and_who_reads_what_tell_all(
    family: str, workers: Workers, tmp_path: Path
) -> None:
    """Their files say neither: edges have no order, and sums stand nowhere."""
    text = ENCODER if family == "encoder" else write_step(family)
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    (program,) = read_programs(tmp_path / "program.py", workers.compiling)
    graph, places = make_graph(program, "layout:xla:random"), find_places(program.module)
    blind = repair_padding(replace(graph, summed=None))
    operands, summed = find_operands(blind), contractions(blind)
    count = 0
    for place, instruction in enumerate(instructions(program.module)):
        if instruction.opcode in ("dot", "convolution"):
            told = [places[operand] for operand in instruction.operand_ids]
            assert [operands.input[place], operands.kernel[place]] == told
            count += 1
        if instruction.opcode == "dot":
            numbers = instruction.dot
            left, right = (set(own[own >= 0].tolist()) for own in summed[place])
            assert left == set(numbers.lhs_contracting_dimensions)
            assert right == set(numbers.rhs_contracting_dimensions)
    assert count > 5
