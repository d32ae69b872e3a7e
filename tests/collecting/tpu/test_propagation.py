"""Propagated layouts are those of a TPU's compiler: one program that shows each rule, compiled.

Layouts are asked of it where TpuGraphs' configurations mean them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.tpu_propagation import sum_copies
from solution.collecting.cpu import Workers
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import (
    MADE_OF,
    NODE,
)
from solution.collecting.tpu.estimator import Estimator
from solution.domain.codebook import encode
from solution.domain.vocabulary import OPCODE_IDS, OPCODES
from solution.features.preparation import repair_padding
from solution.features.propagation.backend import TPU
from solution.features.propagation.propagation import Propagation
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program, make_graph
from tests.features.propagation.slow import Layout, unpack
from tests.made.modules import ask
from tests.made.timed import read_text

IMPORTS = "import jax\nimport jax.numpy as jnp\n"
ARGUMENTS = "arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES)\n"
SOURCE = """
def program(x, w, left, right, a, b, c):
    hidden = jnp.tanh(x @ w)  # a product of rank 3
    heads = jnp.transpose(hidden.reshape(8, 12, 4, 16), (0, 2, 1, 3))  # a reshape that moves data
    tied = jax.nn.softmax(left @ right)  # a product whose layouts tie, and reductions
    chain = jnp.tanh(a @ b) @ c  # a dot that only another dot reads
    return heads * 2, tied, chain, jnp.sum(hidden, -1)

SHAPES = ((8, 12, 64), (64, 64), (16, 64), (64, 16), (96, 96), (96, 48), (48, 96))
"""
COPIES = """
def program(x, w, v):
    hidden = jnp.tanh(x @ w)
    scale = jnp.sum(hidden * hidden, -1, keepdims=True)  # a vector of size 128 becomes (128, 1)
    return (hidden / jnp.sqrt(scale + 1)) @ v

SHAPES = ((128, 64), (64, 48), (48, 32))
"""
HEADS = """
def program(x, w, keys):
    queries = (x @ w).reshape(8, 32, 4, 24).transpose(0, 2, 1, 3)
    return jnp.tanh(queries @ keys)

SHAPES = ((8, 32, 96), (96, 96), (8, 4, 24, 32))
"""
NORMAL = """
def program(x, w, v):
    hidden = x @ w
    hidden -= jnp.mean(hidden, -1, keepdims=True)
    scale = jnp.mean(hidden * hidden, -1, keepdims=True)
    return (hidden / jnp.sqrt(scale + 1)) @ v

SHAPES = ((8, 16, 32), (32, 24), (24, 16))
"""
CLUSTER = """
def program(x, w):
    image = jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.exp(jnp.tanh(image * image + 1) * image) + image

SHAPES = ((4, 32, 32, 8), (3, 3, 8, 48))
"""
ASKED = (1, 2, 0)  # the layout that the second configuration requests of the product of rank 3


@pytest.fixture(scope="module")
def program(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return read_source(SOURCE, tmp_path_factory.mktemp("programs") / "rules.py", workers)


def read_source(source: str, path: Path, workers: Workers) -> Program:
    """The program, with the number of each node as its op_name."""
    found = read_text(IMPORTS + source + ARGUMENTS, path, workers, "tpu")
    for number, instruction in enumerate(instructions(found.module)):
        instruction.metadata.op_name = f"{NODE}{number}"
    return found


@pytest.fixture(scope="module")
def layouts(program: Program) -> np.ndarray:
    """Two configurations (2, configurable, 3, 6): nothing is asked, and ASKED of one product."""
    given = np.full((2, len(program.configurable), 3, 6), -1, np.int8)
    given[1, find_sizes(program).index((8, 12, 64)), 0, : len(ASKED)] = ASKED
    return given


def find_sizes(program: Program) -> list[tuple[int, ...]]:
    """Of its configurable nodes."""
    nodes = list(instructions(program.module))
    return [tuple(nodes[number].shape.dimensions) for number in program.configurable]


@pytest.fixture(scope="module")
def propagated(program: Program, layouts: np.ndarray) -> list[dict[int, Layout]]:
    """By configuration and node: the layout without dimensions of size 1."""
    propagation = propagate(program, layouts)
    ops, found = propagation.instructions, []
    for row in propagation.number().results[propagation.graph.layouts.rows]:
        made = {}
        for op in np.flatnonzero(ops.is_programs & (ops.rank > 1)):
            sizes = ops.sizes[op]
            made[int(ops.node[op])] = drop_ones(unpack(int(row[op]), int(ops.rank[op])), sizes)
        found.append(made)
    return found


def propagate(program: Program, layouts: np.ndarray) -> Propagation:
    configs = encode(layouts.reshape(*layouts.shape[:2], -1))
    graph = replace(make_graph(program, "layout:xla:random"), configs=configs)
    return Propagation(repair_padding(graph), TPU)


def drop_ones(layout: Layout, sizes: np.ndarray) -> Layout:
    return tuple(axis for axis in layout if sizes[axis] > 1)


@pytest.fixture(scope="module")
def estimator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estimator]:
    pytest.importorskip("libtpu", reason="the TPU's compiler comes with the extra `tpu`")
    with Estimator(parse_target("tpu:v3"), cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def compile_each(estimator: Estimator, program: Program, layouts: np.ndarray) -> list[Any]:
    """What the compiler makes of the program in each configuration."""
    modules = [ask(program.module, program.configurable, given) for given in layouts]
    answers = [estimator.estimate(asked) for asked in modules]
    assert not any(answer.refused for answer in answers), answers
    return [answer.compiled for answer in answers]


@pytest.fixture(scope="module")
def compiled(
    estimator: Estimator, program: Program, layouts: np.ndarray
) -> list[dict[int, set[Layout]]]:
    """The same from the compiler, for instructions that it kept; several if it duplicated one."""
    nodes, found = list(instructions(program.module)), []
    for each in compile_each(estimator, program, layouts):
        made = defaultdict(set)
        for tensor in each.tensors:
            number = tensor.source.removeprefix(NODE).partition("/")[0]
            if number.isdigit() and sum(size > 1 for size in tensor.dimensions) > 1:
                own = nodes[int(number)]
                alike = (own.opcode, *MADE_OF.get(own.opcode, ()))
                is_same = tuple(own.shape.dimensions) == tensor.dimensions
                if is_same and tensor.opcode in alike:
                    sizes = np.array(tensor.dimensions)
                    made[int(number)].add(drop_ones(tensor.minor_to_major, sizes))
        found.append(made)
    return found


def test_every_layout_is_the_compilers(
    propagated: list[dict[int, Layout]], compiled: list[dict[int, set[Layout]]], program: Program
) -> None:
    for ours, theirs in zip(propagated, compiled, strict=True):
        compared = [node for node in theirs if node in ours]
        wrong = {
            (node, OPCODES[program.nodes.opcodes[node]], ours[node], *theirs[node])
            for node in compared
            if ours[node] not in theirs[node]
        }
        assert len(compared) >= 15
        assert not wrong


def test_the_program_shows_the_rules(propagated: list[dict[int, Layout]], program: Program) -> None:
    """Each rule gives another layout than the simpler rule without it."""
    nodes = list(instructions(program.module))

    def find(opcode: str, sizes: tuple[int, ...], config: int = 0) -> Layout:
        (layout,) = {
            propagated[config][number]
            for number, own in enumerate(nodes)
            if own.opcode == opcode and tuple(own.shape.dimensions) == sizes
            and number in propagated[config]
        }  # fmt: skip
        return layout

    assert find("parameter", (8, 12, 64)) == (2, 0, 1)  # least padded, not row-major
    assert find("dot", (96, 48)) == (1, 0)  # only a dot reads it: row-major, not least padded
    assert find("dot", (16, 16)) == (0, 1)  # a reduction sums the last dimension
    assert find("dot", (8, 12, 64), config=1) == ASKED
    assert find("reshape", (8, 12, 4, 16)) == (3, 2, 0, 1)  # selected with its operand's layout


def test_copied_bytes_are_the_compilers(
    estimator: Estimator, workers: Workers, tmp_path: Path
) -> None:
    """The two minor dimensions of a product's operands and result are swapped without a copy. A
    vector that is laid along the sublanes, because (128, 1) is requested so, is copied and padded.
    """
    program = read_source(COPIES, tmp_path / "copies.py", workers)
    sizes = find_sizes(program)
    layouts = np.full((3, len(sizes), 3, 6), -1, np.int8)
    layouts[1, sizes.index((128, 1)), 0, :2] = 1, 0
    layouts[2, sizes.index((128, 48)), 0, :2] = 1, 0
    propagation = propagate(program, layouts)
    copied = sum_copies(propagation, propagation.number(), has_fused=True)[
        propagation.graph.layouts.rows
    ]
    compiled = [
        sum(copy.bytes for copy in each.copies)
        for each in compile_each(estimator, program, layouts)
    ]
    assert copied.tolist() == compiled == [0, 128 * 128 * 4, 0]


def test_copies_on_both_sides_of_a_reshape_merge(
    estimator: Estimator, workers: Workers, tmp_path: Path
) -> None:
    """What is requested of a reshape between a product and a transpose would be copied twice, but
    the product writes what the next product reads."""
    program = read_source(HEADS, tmp_path / "heads.py", workers)
    sizes = find_sizes(program)
    layouts = np.full((1, len(sizes), 3, 6), -1, np.int8)
    layouts[0, sizes.index((8, 32, 96)), 0, :3] = 1, 2, 0
    reshape = sizes.index((8, 32, 4, 24))
    layouts[0, reshape, 0, :4], layouts[0, reshape, 1, :3] = (0, 3, 2, 1), (0, 2, 1)
    propagation = propagate(program, layouts)
    assert sum_copies(propagation, propagation.number(), has_fused=True).tolist() == [0]
    (compiled,) = compile_each(estimator, program, layouts)
    assert not compiled.copies


def test_dimensions_of_size_1_are_dropped_where_nothing_is_asked_of_them(
    estimator: Estimator, workers: Workers, tmp_path: Path
) -> None:
    """A mean that keeps its dimension is computed without it, so a layout that is asked of the
    reshape that drops it costs nothing. One that is asked of what keeps it is copied into."""
    program = read_source(NORMAL, tmp_path / "normal.py", workers)
    sizes = find_sizes(program)
    drops, adds = sizes.index((8, 16)), sizes.index((8, 16, 1))
    layouts = np.full((3, len(sizes), 3, 6), -1, np.int8)
    layouts[1, drops, 0, :2], layouts[1, drops, 1, :3] = (1, 0), (2, 1, 0)
    layouts[2, adds, 0, :3], layouts[2, adds, 1, :2] = (2, 1, 0), (1, 0)
    propagation = propagate(program, layouts)
    numbered = propagation.number()
    copied = sum_copies(propagation, numbered, has_fused=False)[propagation.graph.layouts.rows]
    compiled = compile_each(estimator, program, layouts)
    for found in (copied.tolist(), [sum(copy.bytes for copy in each.copies) for each in compiled]):
        assert found[:2] == [0, 0]
        assert found[2] > 0


def test_a_cluster_moves_to_the_layout_with_less_padding(
    estimator: Estimator, workers: Workers, tmp_path: Path
) -> None:
    """A convolution writes its result with the batch, 4, in the rows of tiles, which are eight:
    what is computed from it element by element has 32 pixels there."""
    program = read_source(CLUSTER, tmp_path / "cluster.py", workers)
    layouts = np.full((1, len(program.configurable), 3, 6), -1, np.int8)
    propagation = propagate(program, layouts)
    ops, (row,) = propagation.instructions, propagation.number().results
    (compiled,) = compile_each(estimator, program, layouts)
    for opcode, expected in (("tanh", (3, 2, 1, 0)), ("convolution", (3, 0, 2, 1))):
        (op,) = np.flatnonzero(ops.is_programs & (ops.opcodes == OPCODE_IDS[opcode]))
        theirs = {one.minor_to_major for one in compiled.tensors if one.opcode == opcode}
        assert unpack(int(row[op]), 4) == expected
        assert theirs == {expected}
