"""Propagated layouts are those of a TPU's compiler: one program that shows each rule, compiled."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("libtpu", reason="the TPU's compiler comes with the extra `tpu`")

from benchmarks.tpu_propagation import sum_copies
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import MADE_OF, NODE
from solution.collecting.tpu.estimator import Estimator
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES, OPCODES
from solution.features.preparation import repair_padding
from solution.features.propagation.backend import TPU
from solution.features.propagation.propagation import Propagation
from solution.programs.child import Child, Limits
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program, read_programs
from tests.features.propagation.slow import Layout, unpack
from tests.made.modules import ask

SOURCE = """
import jax
import jax.numpy as jnp

def program(x, w, left, right, a, b, c):
    hidden = jnp.tanh(x @ w)  # a product of rank 3
    heads = jnp.transpose(hidden.reshape(8, 12, 4, 16), (0, 2, 1, 3))  # a reshape that moves data
    tied = jax.nn.softmax(left @ right)  # a product whose layouts tie, and reductions
    chain = jnp.tanh(a @ b) @ c  # a dot that only another dot reads
    return heads * 2, tied, chain, jnp.sum(hidden, -1)

SHAPES = ((8, 12, 64), (64, 64), (16, 64), (64, 16), (96, 96), (96, 48), (48, 96))
arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES)
"""
COPIES = """
import jax
import jax.numpy as jnp

def program(x, w, v):
    hidden = jnp.tanh(x @ w)
    scale = jnp.sum(hidden * hidden, -1, keepdims=True)  # a vector of size 128 becomes (128, 1)
    return (hidden / jnp.sqrt(scale + 1)) @ v

SHAPES = ((128, 64), (64, 48), (48, 32))
arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES)
"""
HEADS = """
import jax
import jax.numpy as jnp

def program(x, w, keys):
    queries = (x @ w).reshape(8, 32, 4, 24).transpose(0, 2, 1, 3)
    return jnp.tanh(queries @ keys)

SHAPES = ((8, 32, 96), (96, 96), (8, 4, 24, 32))
arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES)
"""
ASKED = (1, 2, 0)  # the layout that the second configuration requests of the product of rank 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return read_source(SOURCE, tmp_path_factory.mktemp("programs") / "rules.py")


def read_source(source: str, path: Path) -> Program:
    """The program, with the number of each node as its op_name."""
    path.write_text(source, encoding="utf-8")
    with Child(Limits(120)) as child:
        (found,) = read_programs(path, child, platform="tpu")
    for number, instruction in enumerate(instructions(found.module)):
        instruction.metadata.op_name = f"{NODE}{number}"
    return found


@pytest.fixture(scope="module")
def layouts(program: Program) -> np.ndarray:
    """Two configurations (2, configurable, 18): nothing is requested, and ASKED of one product."""
    given = np.full((2, len(program.configurable), NUM_LAYOUT_FEATURES), -1, np.int8)
    nodes = list(instructions(program.module))
    sizes = [tuple(nodes[node].shape.dimensions) for node in program.configurable]
    given[1, sizes.index((8, 12, 64)), : len(ASKED)] = ASKED
    return given


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
    nodes = program.nodes
    graph = Graph(
        "rules", collection("layout:xla:random"), nodes.features, nodes.opcodes, nodes.edges,
        program.configurable, encode(layouts), None, summed=nodes.summed,
    )  # fmt: skip
    return Propagation(repair_padding(graph), TPU)


def drop_ones(layout: Layout, sizes: np.ndarray) -> Layout:
    return tuple(axis for axis in layout if sizes[axis] > 1)


@pytest.fixture(scope="module")
def compiled(
    program: Program, layouts: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[int, set[Layout]]]:
    """The same from the compiler, for instructions that it kept; several if it duplicated one."""
    nodes, found = list(instructions(program.module)), []
    with Estimator(parse_target("tpu:v3"), cache=tmp_path_factory.mktemp("cache")) as estimator:
        for given in layouts.reshape(*layouts.shape[:2], 3, 6):
            answer = estimator.estimate(ask(program.module, program.configurable, given))
            assert answer.compiled is not None, answer.refused
            made = defaultdict(set)
            for tensor in answer.compiled.tensors:
                number = tensor.source.removeprefix(NODE).partition("/")[0]
                if number.isdigit() and sum(size > 1 for size in tensor.dimensions) > 1:
                    node = nodes[int(number)]
                    alike = (node.opcode, *MADE_OF.get(node.opcode, ()))
                    is_same = tuple(node.shape.dimensions) == tensor.dimensions
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

    def find(opcode: str, shape: tuple[int, ...], config: int = 0) -> Layout:
        (layout,) = {
            propagated[config][number]
            for number, node in enumerate(nodes)
            if node.opcode == opcode and tuple(node.shape.dimensions) == shape
            and number in propagated[config]
        }  # fmt: skip
        return layout

    assert find("parameter", (8, 12, 64)) == (2, 0, 1)  # least padded, not row-major
    assert find("dot", (96, 48)) == (1, 0)  # only a dot reads it: row-major, not least padded
    assert find("dot", (16, 16)) == (0, 1)  # a reduction sums the last dimension
    assert find("dot", (8, 12, 64), config=1) == ASKED
    assert find("reshape", (8, 12, 4, 16)) == (3, 2, 0, 1)  # selected with its operand's layout


def test_copied_bytes_are_the_compilers(tmp_path: Path) -> None:
    """The two minor dimensions of a product's operands and result are swapped without a copy. A
    vector that is laid along the sublanes, because (128, 1) is requested so, is copied and padded.
    """
    program = read_source(COPIES, tmp_path / "copies.py")
    nodes = list(instructions(program.module))
    sizes = [tuple(nodes[node].shape.dimensions) for node in program.configurable]
    layouts = np.full((3, len(sizes), NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[1, sizes.index((128, 1)), :2] = 1, 0
    layouts[2, sizes.index((128, 48)), :2] = 1, 0
    propagation = propagate(program, layouts)
    copied = sum_copies(propagation, propagation.number())[propagation.graph.layouts.rows]
    compiled = []
    with Estimator(parse_target("tpu:v3"), cache=tmp_path / "cache") as estimator:
        for given in layouts.reshape(3, -1, 3, 6):
            answer = estimator.estimate(ask(program.module, program.configurable, given))
            assert answer.compiled is not None, answer.refused
            compiled.append(sum(copy.bytes for copy in answer.compiled.copies))
    assert copied.tolist() == compiled == [0, 128 * 128 * 4, 0]


def test_copies_on_both_sides_of_a_reshape_merge(tmp_path: Path) -> None:
    """What is requested of a reshape between a product and a transpose would be copied twice, but
    the product writes what the next product reads."""
    program = read_source(HEADS, tmp_path / "heads.py")
    shapes = {"dot": (8, 32, 96), "reshape": (8, 32, 4, 24)}
    nodes = [list(instructions(program.module))[node] for node in program.configurable]
    found = [(node.opcode, tuple(node.shape.dimensions)) for node in nodes]
    layouts = np.full((1, len(nodes), 3, 6), -1, np.int8)
    layouts[0, found.index(("dot", shapes["dot"])), 0, :3] = 1, 2, 0
    reshape = found.index(("reshape", shapes["reshape"]))
    layouts[0, reshape, 0, :4], layouts[0, reshape, 1, :3] = (0, 3, 2, 1), (0, 2, 1)
    propagation = propagate(program, layouts.reshape(1, len(nodes), -1))
    assert sum_copies(propagation, propagation.number()).tolist() == [0]
    with Estimator(parse_target("tpu:v3"), cache=tmp_path / "cache") as estimator:
        answer = estimator.estimate(ask(program.module, program.configurable, layouts[0]))
    assert answer.compiled is not None, answer.refused
    assert not answer.compiled.copies
