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
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tpu_propagation import sum_copies
from solution.collecting.constraints import constrain
from solution.collecting.cpu import Workers
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import (
    MADE_OF,
    NODE,
    PROPAGATES,
    WINDOWS,
    WRITES_FIXED,
    inline_calls,
)
from solution.collecting.tpu.estimator import Estimator
from solution.domain.codebook import encode
from solution.domain.vocabulary import OPCODE_IDS, OPCODES
from solution.features.preparation import repair_padding
from solution.features.propagation.backend import TPU
from solution.features.propagation.propagation import Propagation
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.portable import FreshIds, make_portable
from solution.programs.program import Program, make_graph
from tests.features.propagation.slow import Layout, unpack
from tests.made.modules import ask, dot, module, node, shape
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


SQUARE = (8, 8)
UNARY = ("tanh", "negate", "reduce-window", "transpose", "broadcast")
BINARY = ("add", "compare", "concatenate")
TOKEN, TUPLE = 17, 13  # of XLA's PrimitiveType


def tuple_shape(*parts: Any, kind: int = TUPLE) -> Any:
    return MESSAGES["Shape"](element_type=kind, tuple_shapes=parts)


def unset(count: int) -> np.ndarray:
    return np.full((count, 3, 6), -1, np.int8)


def make_program(*nodes: Any) -> Program:
    """A program of one computation."""
    return Program("p", module(("main", nodes[-1].id, list(nodes))), [])


def constraints(data: bytes) -> dict[int, tuple[int, ...]]:
    """The layout of each constraint, by the id of what it constrains."""
    return {
        i.operand_ids[0]: tuple(i.shape.layout.minor_to_major)
        for i in instructions(MESSAGES["Module"].FromString(data))
        if i.custom_call_target == "LayoutConstraint"
    }


def product(place: int, left: int, right: int) -> Any:
    return node(place, "dot", shape(*SQUARE), (left, right), dot=dot([1], [0], [], []))


def test_an_output_reaches_the_product_that_reads_it_through_elementwise_nodes() -> None:
    program = make_program(
        node(1, "parameter", shape(*SQUARE)),
        product(2, 1, 1),
        node(3, "tanh", shape(*SQUARE), (2,)),
        node(4, "add", shape(*SQUARE), (1, 3)),
        node(5, "broadcast", shape(*SQUARE), (4,), dimensions=[1, 0]),
        product(6, 4, 5),
    )
    layouts = unset(2)
    layouts[0, 0, :2] = (0, 1)
    asked, alone = (
        write(program.module, program.configurable, layouts) for write in (ask, constrain)
    )
    assert constraints(asked) == {2: (0, 1), 4: (0, 1)}
    assert constraints(alone) == {2: (0, 1)}


def test_a_transpose_takes_the_layout_under_which_no_data_move() -> None:
    program = make_program(
        node(1, "parameter", shape(4, 5)),
        node(2, "dot", shape(2, 3, 4, 5), (1, 1), dot=dot([], [], [], [])),
        node(3, "transpose", shape(4, 2, 5, 3), (2,), dimensions=[2, 0, 3, 1]),
    )
    layouts = unset(1)
    layouts[0, 0, :4] = (1, 3, 0, 2)
    asked = constraints(ask(program.module, program.configurable, layouts))
    assert asked == {2: (1, 3, 0, 2), 3: (3, 2, 1, 0)}


def test_what_is_fed_is_asked_for_as_the_product_reads_it() -> None:
    fed = tuple_shape(shape(*SQUARE), tuple_shape(kind=TOKEN))
    program = make_program(
        node(1, "after-all", tuple_shape(kind=TOKEN)),
        node(2, "infeed", fed, (1,)),
        node(3, "get-tuple-element", shape(*SQUARE), (2,)),
        node(4, "parameter", shape(*SQUARE)),
        product(5, 3, 4),
    )
    layouts = unset(1)
    layouts[0, 1:, :2] = (0, 1)
    written = MESSAGES["Module"].FromString(ask(program.module, program.configurable, layouts))
    (own,) = [i for i in instructions(written) if i.opcode == "dot"]
    constrained = [i for i in instructions(written) if i.custom_call_target == "LayoutConstraint"]
    assert [list(i.operand_ids) for i in constrained] == [[3]]
    assert list(own.operand_ids) == [constrained[0].id, 4]


def test_operands_are_asked_for_of_reshapes_alone() -> None:
    program = make_program(
        node(1, "parameter", shape(*SQUARE)),
        product(2, 1, 1),
        node(3, "reshape", shape(64, 1), (2,)),
    )
    layouts = unset(2)
    layouts[0, 1, :2] = layouts[0, 2, :2] = (0, 1)
    layouts[1, :2, :2] = (1, 0)
    assert constraints(ask(program.module, program.configurable, layouts)) == {2: (1, 0), 3: (1, 0)}


def test_layouts_pass_through_calls_and_each_copy_has_its_own() -> None:
    """The function is called of a tensor that has a layout, and of one that has none."""
    callee = [
        node(11, "parameter", shape(*SQUARE)),
        node(12, "tanh", shape(*SQUARE), (11,)),
        product(13, 12, 12),
    ]
    main = [
        node(1, "parameter", shape(*SQUARE)),
        product(2, 1, 1),
        node(3, "call", shape(*SQUARE), (2,), called_computation_ids=[1]),
        node(4, "call", shape(*SQUARE), (1,), called_computation_ids=[1]),
        node(5, "add", shape(*SQUARE), (3, 4)),
    ]
    program = Program("p", module(("callee", 13, callee), ("main", 5, main)), [])
    layouts = unset(2)
    layouts[:, 0, :2] = [(1, 0), (0, 1)]  # of the callee's product, and of the caller's
    asked = ask(program.module, program.configurable, layouts)
    found = MESSAGES["Module"].FromString(asked)
    assert "call" not in {i.opcode for i in found.computations[-1].instructions}
    by_id = {i.id: i for i in instructions(found)}
    behind = [(by_id[o].opcode, layout) for o, layout in constraints(asked).items()]
    entry = [pair for pair in behind if pair != ("dot", (1, 0))]
    assert sorted(entry) == [("dot", (0, 1)), ("tanh", (0, 1))]
    assert behind.count(("dot", (1, 0))) == 3  # in the function, and in its two copies


def test_layouts_pass_through_the_tuple_that_a_function_returns() -> None:
    """As a step of jax's loops returns its state: the product behind it reads an element."""
    pair = tuple_shape(shape(*SQUARE), shape(*SQUARE))
    callee = [
        node(11, "parameter", shape(*SQUARE)),
        node(12, "tanh", shape(*SQUARE), (11,)),
        node(13, "negate", shape(*SQUARE), (12,)),
        node(14, "tuple", pair, (13, 12)),
    ]
    main = [
        node(1, "parameter", shape(*SQUARE)),
        product(2, 1, 1),
        node(3, "call", pair, (2,), called_computation_ids=[1]),
        node(4, "get-tuple-element", shape(*SQUARE), (3,), tuple_index=1),
        product(5, 4, 1),
        node(6, "get-tuple-element", shape(*SQUARE), (3,), tuple_index=0),
        node(7, "tuple", pair, (5, 6)),
    ]
    program = Program("p", module(("callee", 14, callee), ("main", 7, main)), [])
    layouts = unset(2)
    layouts[0, 0, :2] = (0, 1)
    asked = ask(program.module, program.configurable, layouts)
    entry = MESSAGES["Module"].FromString(asked).computations[-1]
    by_id = {i.id: i for i in entry.instructions}
    found = {by_id[o].opcode: layout for o, layout in constraints(asked).items()}
    assert found == {"dot": (0, 1), "tanh": (0, 1)}
    assert "get-tuple-element" not in {i.opcode for i in entry.instructions}
    root = by_id[entry.root_id]
    assert [by_id[o].opcode for o in root.operand_ids] == ["dot", "negate"]


def test_the_layouts_of_what_crosses_the_boundary_stay() -> None:
    turned = shape(4, 5, order=[0, 1])
    made = make_program(
        node(1, "parameter", turned),
        node(2, "infeed", tuple_shape(turned)),
        node(3, "get-tuple-element", turned, (2,)),
        node(4, "add", turned, (1, 3)),
    ).module
    kept = list(instructions(make_portable(made, keeps_boundary=True)))
    orders = [list(i.shape.layout.minor_to_major) for i in kept]
    assert orders == [[0, 1], [], [1, 0], [1, 0]]
    assert list(kept[1].shape.tuple_shapes[0].layout.minor_to_major) == [0, 1]
    plain = make_portable(made)
    assert list(plain.computations[0].instructions[0].shape.layout.minor_to_major) == [1, 0]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, np.ndarray]:
    """A program of one computation whose tensors are square, and layouts of its products."""
    nodes = [node(1, "parameter", shape(*SQUARE))]
    for place in range(2, draw(st.integers(2, 12))):
        opcode = draw(st.sampled_from(("dot", *UNARY, *BINARY)))
        operand = st.integers(1, place - 1)
        if opcode == "dot":
            nodes.append(product(place, draw(operand), draw(operand)))
        else:
            count = 1 + (opcode in BINARY)
            operands = tuple(draw(operand) for _ in range(count))
            nodes.append(node(place, opcode, shape(*SQUARE), operands, dimensions=[1, 0]))
    layouts = unset(sum(own.opcode == "dot" for own in nodes))
    for row in layouts:
        row[0, :2] = draw(st.sampled_from(((-1, -1), (0, 1), (1, 0))))
    return make_program(*nodes), layouts


@given(programs())
@settings(max_examples=200, deadline=None)
def test_what_is_asked_is_the_definition(drawn: tuple[Program, np.ndarray]) -> None:
    program, layouts = drawn
    rows = dict(zip((program.configurable + 1).tolist(), layouts, strict=True))
    by_id = {own.id: own for own in instructions(program.module)}

    def find(number: int) -> tuple[int, ...] | None:
        """The propagated layout, by the definition: recursive, one operand after the other."""
        if number in rows:
            return tuple(rows[number][0, :2].tolist()) if rows[number][0, 0] >= 0 else None
        if by_id[number].opcode not in PROPAGATES:
            return None
        known = [find(operand) for operand in by_id[number].operand_ids]
        layout = next((layout for layout in known if layout), None)
        return layout[::-1] if layout and by_id[number].opcode == "transpose" else layout

    expected = {}
    for number, own in by_id.items():
        readers = [r for r in by_id.values() if number in r.operand_ids]
        is_read = any(r.opcode == "dot" or r.opcode in WINDOWS for r in readers)
        layout = find(number)
        if layout and (number in rows or own.opcode in WRITES_FIXED or is_read):
            expected[number] = layout
    assert constraints(ask(program.module, program.configurable, layouts)) == expected


def test_calls_of_calls_are_inlined_once_each() -> None:
    inner = [node(11, "parameter", shape(2, 2)), node(12, "tanh", shape(2, 2), (11,))]
    outer = [
        node(21, "parameter", shape(2, 2)),
        node(22, "call", shape(2, 2), (21,), called_computation_ids=[1]),
        node(23, "call", shape(2, 2), (22,), called_computation_ids=[1]),
    ]
    main = [
        node(31, "parameter", shape(2, 2)),
        node(32, "call", shape(2, 2), (31,), called_computation_ids=[2]),
    ]
    made = module(("inner", 12, inner), ("outer", 23, outer), ("main", 32, main))
    origins = inline_calls(made)
    entry = made.computations[-1]
    assert [i.opcode for i in entry.instructions] == ["parameter", "tanh", "tanh"]
    first, second = entry.instructions[1:]
    assert (list(first.operand_ids), list(second.operand_ids)) == ([31], [first.id])
    assert entry.root_id == second.id
    assert {origins[first.id], origins[second.id]} == {12}
    assert len({i.id for i in instructions(made)}) == len(list(instructions(made)))
    assert FreshIds(made).take() not in {i.id for i in instructions(made)}
