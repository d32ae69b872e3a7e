"""The compiler's fusions and layouts, compared with those that the propagation predicts."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.operands import count_wrong
from benchmarks.propagation import compare_program, compile_program, dump_passes
from solution.collecting.child import Optimise
from solution.collecting.cpu import Workers
from solution.collecting.families import draw_settings, write_file
from solution.collecting.program_space import LAYOUTS, make_collected_space
from solution.collecting.space import draw_new, name_config
from solution.domain.codebook import encode
from solution.domain.vocabulary import OPCODES
from solution.features.preparation import repair_padding
from solution.features.propagation import library
from solution.features.propagation.instructions import ASKS
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.states import MADE
from solution.programs.child import Child, Limits
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.program import Program, make_graph, read_programs
from tests.made.timed import read_text

COUNTED = {
    OPCODES[opcode]
    for opcode in (*library.MAKING, *library.PRODUCTS, library.REDUCE, library.WINDOWS)
}
NETS = '''
"""A residual net that ends in a mean, a net with poolings that ends in a product, attention."""
import jax
import numpy as np
from jax import numpy as jnp

random = np.random.default_rng(0)

def draw(*shape):
    return random.normal(size=shape).astype(np.float32)

def convolve(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )

def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

def residual(x, weights):
    for first, second, scale in weights:
        made = jnp.maximum(convolve(x, first) * scale, 0)
        x = jnp.maximum(x + convolve(made, second), 0)
    return x.mean((1, 2))

def pooled(x, w, last):
    for _ in range(2):
        x = pool(jnp.maximum(convolve(x, w), 0))
    return x.reshape(len(x), -1) @ last

def attention(q, k, v):
    weights = jax.nn.softmax(0.1 * jnp.einsum("bihd,bjhd->bhij", q, k))
    return jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(len(q), -1)

def step(x, w, v):
    def loss(w, v):
        made = jnp.tanh(x @ w)
        normed = made - made.mean(-1, keepdims=True)
        return ((normed @ v) ** 2).sum()
    return jax.grad(loss, (0, 1))(w, v)

'''
# Nets and their arguments.
PROGRAMS = {
    "residual": """(
        draw(8, 12, 12, 16), [(draw(3, 3, 16, 24), draw(1, 1, 24, 16), draw(24)) for _ in range(3)]
    )""",
    "pooled": "(draw(8, 16, 16, 24), draw(3, 3, 24, 24), draw(4 * 4 * 24, 16))",
    "attention": "(draw(2, 32, 4, 16), draw(2, 32, 4, 16), draw(2, 32, 4, 16))",
}
# Sums of 40 are split, and gradients of weights are transposed products.
LEFT_OUT = {
    "attention": "(draw(4, 40, 4, 16), draw(4, 40, 4, 16), draw(4, 40, 4, 16))",
    "step": "(draw(8, 16, 48), draw(48, 40), draw(40, 24))",
}


def read_net(name: str, arguments: str, folder: Path, workers: Workers) -> Program:
    text = f"{NETS}\nprogram = {name}\narguments = {arguments}\n"
    return read_text(text, folder / "program.py", workers)


def count_compiled(module: bytes) -> Counter[str]:
    """Count the instructions in the library's fusions that have a reduction or pooling."""
    compiled = MESSAGES["Module"].FromString(module)
    computations = {each.id: each for each in compiled.computations}
    counts: Counter[str] = Counter()
    for instruction in computations[compiled.entry_computation_id].instructions:
        if instruction.opcode == "fusion" and instruction.name.startswith("ynn"):
            fused = computations[instruction.called_computation_ids[0]].instructions
            opcodes = Counter(each.opcode for each in fused if each.opcode in COUNTED)
            counts += opcodes if opcodes["reduce"] or opcodes["reduce-window"] else Counter()
    return counts


def count_left_out(module: bytes) -> tuple[int, int]:
    """Count reductions in two steps, and dots that are in no fusion of the library."""
    compiled = MESSAGES["Module"].FromString(module)
    fused = {
        number
        for instruction in instructions(compiled)
        if instruction.name.startswith("ynn")
        for number in instruction.called_computation_ids
    }
    found = [
        (each.opcode, computation.id in fused)
        for computation in compiled.computations
        for each in computation.instructions
    ]
    windows = sum(opcode == "reduce-window" for opcode, _ in found)
    return windows, sum(opcode == "dot" and not inside for opcode, inside in found)


def propagate(program: Program, layouts: np.ndarray) -> Propagation:
    graph = make_graph(program, "layout:xla:random")
    configs = encode(layouts.reshape(len(layouts), len(program.configurable), -1))
    return Propagation(repair_padding(replace(graph, configs=configs)))


def count_joined(program: Program, layouts: np.ndarray) -> list[Counter[str]]:
    propagation = propagate(program, layouts)
    own, graph = propagation.instructions, propagation.graph
    names = [
        "" if kind == ASKS or node < 0 else OPCODES[graph.node_opcodes[node]]
        for node, kind in zip(own.node, own.kind, strict=True)
    ]
    joined = library.join_library(propagation, propagation.number()) != 0
    return [
        Counter(names[k] for k in np.flatnonzero(row) if names[k] in COUNTED)
        for row in joined[graph.layouts.rows]
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_library_gets_what_is_predicted(name: str, workers: Workers, tmp_path: Path) -> None:
    program = read_net(name, PROGRAMS[name], tmp_path, workers)
    space = make_collected_space(program, LAYOUTS, varies_fastest=True)
    known = {name_config(space.default)}
    drawn = draw_new(space, np.random.default_rng(0), 11, known, space.default[None])
    configs = np.stack([space.default, *drawn])
    optimised = [workers.compiling.ask(Optimise(*space.prepare(config))) for config in configs]
    compiled = [count_compiled(module) for module in optimised]
    found = count_joined(program, space.layouts(configs))
    if name == "attention":  # not the maximum of a reduction's result and its initial value
        for each in (*compiled, *found):
            del each["maximum"]
    assert compiled == found
    assert len({tuple(sorted(each.items())) for each in compiled}) > 1


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_library_leaves_out_as_predicted(name: str, workers: Workers, tmp_path: Path) -> None:
    program = read_net(name, LEFT_OUT[name], tmp_path, workers)
    space = make_collected_space(program, LAYOUTS)
    configs = draw_new(space, np.random.default_rng(0), 12, set())
    optimised = [workers.compiling.ask(Optimise(*space.prepare(config))) for config in configs]
    compiled = [count_left_out(module) for module in optimised]
    propagation = propagate(program, space.layouts(configs))
    numbered, rows = propagation.number(), propagation.graph.layouts.rows
    split = (library.join_library(propagation, numbered) == library.SPLIT).sum(axis=1)
    own, made = propagation.instructions, numbered.layouts[:, MADE]
    is_slow = library.find_slow_products(propagation.graph, own, numbered.point, made)
    slow = is_slow[numbered.numbers].sum(axis=1)
    assert list(zip(split[rows], slow[rows], strict=True)) == compiled
    assert len(set(compiled)) > 1


@pytest.mark.parametrize("family", ["convnet", "gnn"])
def test_layouts_of_a_training_step_are_the_compilers(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors that passes do not change; the alternative guess is row-major everywhere."""
    settings = draw_settings((family,), np.random.default_rng(1))
    settings |= {"train": True, "depth": 3, "gated": False, "causal": False}
    (tmp_path / "program.py").write_text(write_file(settings), encoding="utf-8")
    monkeypatch.setenv("XLA_FLAGS", dump_passes(tmp_path / "dump"))
    with Child(Limits(seconds=120)) as child:
        (program,) = read_programs(tmp_path / "program.py", child)
        compile_program(program, tmp_path / family, 4, child, tmp_path / "dump")
    found = compare_program(tmp_path / family)
    assert found.tensors > 20 and found.right > max(0.98, found.default)


@pytest.mark.parametrize("family", ["gnn", "convnet", "transformer"])
def test_operands_and_sums_are_inferred(family: str, workers: Workers, tmp_path: Path) -> None:
    """Graph files have neither."""
    settings = draw_settings((family,), np.random.default_rng(1))
    text = write_file(settings | {"train": True, "depth": 2})
    program = read_text(text, tmp_path / "program.py", workers)
    found = count_wrong(program)
    assert found.pop("products") > 5
    assert found == {"wrong operands": 0, "wrong sums": 0}
