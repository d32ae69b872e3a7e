"""Layouts are requested of a TPU's compiler where TpuGraphs' configurations mean them."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.collecting.constraints import constrain
from solution.collecting.tpu.asking import (
    PROPAGATES,
    WINDOWS,
    WRITES_FIXED,
    inline_calls,
)
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.portable import FreshIds, make_portable
from solution.programs.program import Program
from tests.made.modules import ask, dot, module, node, shape

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
