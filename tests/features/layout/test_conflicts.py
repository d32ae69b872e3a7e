"""Layout constraints that conflict, against hand-worked programs and a slow search."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.layout.conflicts import FEATURES, find_constraints
from tests.made.graphs import make_layout_graph, make_nodes

OUTPUT, INPUT = slice(0, 6), slice(6, 12)
Orders = list[dict[int, tuple[list[int], list[int]]]]


def make_chain(
    opcode: str, middle: tuple[int, ...], orders: Orders, first: tuple[int, ...] = (4, 6, 3)
) -> Graph:
    """x -> reshape 1 -> OPCODE 2 -> reshape 3, with (output, input) orders of both reshapes."""
    layouts = np.full((len(orders), 2, vocabulary.NUM_LAYOUT_FEATURES), -1)
    for row, given_orders in enumerate(orders):
        for place, node in enumerate((1, 3)):
            for tensor, order in zip(
                (OUTPUT, INPUT), given_orders.get(node, ([], [])), strict=True
            ):
                layouts[row, place, tensor.start : tensor.start + len(order)] = order
    size = int(np.prod(middle))
    graph = make_layout_graph()
    return dataclasses.replace(
        graph,
        node_features=make_nodes([(size,), first, middle, (size,)]),
        node_opcodes=np.array(
            [OPCODE_IDS[name] for name in ("parameter", "reshape", opcode, "reshape")], np.uint8
        ),
        edges=np.array([[1, 0], [2, 1], [3, 2]]),
        configurable=np.array([1, 3]),
        configs=encode(layouts),
        runtimes=None,
    )


def describe(graph: Graph, node: int) -> list[dict[str, bool]]:
    """What is said of a node's tensor, a dictionary a configuration."""
    constraints = find_constraints(graph)
    found = constraints.describe(graph.layouts.codes)[graph.layouts.rows]
    column = constraints.nodes.tolist().index(node)
    return [dict(zip(FEATURES, row.tolist(), strict=True)) for row in found[:, column].astype(bool)]


def test_an_order_is_handed_on_element_by_element() -> None:
    orders: Orders = [
        {},
        {1: ([2, 1, 0], [])},
        {1: ([2, 1, 0], []), 3: ([], [2, 1, 0])},
        {1: ([2, 1, 0], []), 3: ([], [2, 0, 1])},
        {1: ([2, 1, 0], []), 3: ([], [0, 1, 2])},
    ]
    said = describe(make_chain("tanh", (4, 6, 3), orders), node=2)
    assert [line["constrained"] for line in said] == [False, True, True, True, True]
    assert [line["minor_differs"] for line in said] == [False, False, False, False, True]
    assert [line["order_differs"] for line in said] == [False, False, False, True, True]


def test_a_dimension_of_size_one_may_stand_anywhere() -> None:
    orders: Orders = [
        {1: ([1, 2, 0], []), 3: ([], [2, 1, 0])},
        {1: ([1, 2, 0], []), 3: ([], [0, 1, 2])},
    ]
    said = describe(make_chain("tanh", (4, 1, 3), orders, first=(4, 1, 3)), node=2)
    assert [line["minor_differs"] for line in said] == [False, True]


def test_a_transpose_renames_the_dimensions() -> None:
    orders: Orders = [
        {1: ([2, 1, 0], []), 3: ([], [0, 2, 1])},  # dimension 2 is called 0, 1 is 2, 0 is 1
        {1: ([2, 1, 0], []), 3: ([], [2, 1, 0])},
    ]
    graph = make_chain("transpose", (3, 4, 6), orders)
    graph.node_features.setflags(write=True)
    graph.node_features[2, vocabulary.DIMENSIONS] = [2, 0, 1, 0, 0, 0]
    assert [line["order_differs"] for line in describe(graph, node=2)] == [False, True]


def test_what_may_order_its_output_anew_hands_nothing_on() -> None:
    orders: Orders = [{1: ([2, 1, 0], []), 3: ([], [0, 1, 2])}]
    for opcode in ("fusion", "copy", "custom-call", "broadcast"):
        assert 2 not in find_constraints(make_chain(opcode, (4, 6, 3), orders)).nodes


def test_an_operation_that_changes_the_shape_hands_nothing_on() -> None:
    orders: Orders = [{1: ([2, 1, 0], []), 3: ([], [0, 1])}]
    assert 2 not in find_constraints(make_chain("reduce", (4, 6), orders)).nodes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_tensor_that_is_ordered_twice(seed: int) -> None:
    """Node 4 (an add) takes the order of the dot before it, and node 5 (a reshape) reads it."""
    graph = make_layout_graph(seed, configs=30)
    sizes = graph.node_features[4, vocabulary.SHAPE_DIMENSIONS]
    for config, said in zip(graph.layouts.expand(), describe(graph, node=4), strict=True):
        constraints = [config[0, OUTPUT], config[1, INPUT]]
        orders = [[d for d in constraint if d >= 0 and sizes[d] > 1] for constraint in constraints]
        given_orders = [order for order in orders if order]
        assert said["constrained"] == bool(given_orders)
        assert said["minor_differs"] == (len({order[0] for order in given_orders}) > 1)
        assert said["order_differs"] == (len({tuple(order[:2]) for order in given_orders}) > 1)
