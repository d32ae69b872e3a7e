"""Operands and sums of products, as features find them and as modules of jax have them."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.operands import count_wrong
from solution.collecting.families import draw_settings, write_file
from solution.collecting.labelling import Workers
from solution.programs.program import read_programs

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
    found = count_wrong(program)
    assert found.pop("products") > 5
    assert found == {"wrong operands": 0, "wrong sums": 0}
