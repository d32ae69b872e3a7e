"""Layouts handed through whole programs: against the slow way, and against hand-worked ones."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.padding import repair_padding
from solution.features.propagation.backend import CPU, TPU, Backend
from solution.features.propagation.instructions import KEEPS
from solution.features.propagation.propagation import Propagation
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, Slow, addresses, unpack
from tests.made.graphs import make_nodes

Operation = tuple[str, tuple[int, ...], list[int]]  # opcode, shape, what it reads


def given_layouts(propagation: Propagation, row: int) -> list[Layout | None]:
    """What each custom call asks for in a configuration, from the configuration's own numbers."""
    own, graph = propagation.instructions, propagation.graph
    config = graph.layouts.expand()[row].reshape(-1, 3, 6)
    found: list[Layout | None] = []
    for rank, (position, tensor) in zip(own.rank, own.asked, strict=True):
        layout = config[position, tensor] if position >= 0 else np.array([-1])
        asked = layout[layout >= 0].tolist()
        missing = [axis for axis in reversed(range(rank)) if axis not in asked]
        fits = asked and sorted([*asked, *missing]) == list(range(rank))
        found.append((*asked, *missing) if fits else None)
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([CPU, TPU]))
def test_layouts_are_those_of_the_slow_way(seed: int, backend: Backend) -> None:
    graph = draw_graph(seed)
    propagation = Propagation(graph, backend)
    own = propagation.instructions
    assigned = propagation.assign()
    for row in range(graph.num_configs):
        slow = Slow(own, backend, given_layouts(propagation, row))
        slow.run()
        numbers = assigned.layouts[graph.layouts.rows[row]]
        fast = [
            unpack(int(number), int(rank)) if number >= 0 else None
            for number, rank in zip(numbers, own.rank, strict=True)
        ]
        assert fast == [buffer.layout for buffer in slow.buffers]
        marks = assigned.copies[graph.layouts.rows[row]]
        assert (marks > 0).tolist() == find_copies(slow, propagation)


def find_copies(slow: Slow, propagation: Propagation) -> list[bool]:
    """Which uses and instructions copy: by the addresses of elements."""
    uses = [use for row in slow.uses for use in row]
    seen: set[tuple[int, Layout]] = set()
    marks = []
    for use in uses:
        moves = False
        if use.layout and use.source.layout and not propagation._free[use.base]:
            shape = slow.shape(use.base)
            moved = addresses(shape, use.layout) != addresses(shape, use.source.layout)
            is_there = (use.source.number, use.layout) in seen
            moves = bool(moved.any()) and (slow.program.kind[use.reader] == KEEPS or not is_there)
            seen.add((use.source.number, use.layout))
        marks.append(moves)
    return marks + [_moves(slow, own) for own in range(slow.program.count)]


def _moves(slow: Slow, own: int) -> bool:
    """Whether a reshape or a transpose puts an element elsewhere."""
    if len(slow.uses[own]) != 1 or slow.rank(own) < 2 or not slow.buffers[own].layout:
        return False
    (use,) = slow.uses[own]
    read = use.layout or use.source.layout or tuple(range(slow.rank(use.base)))
    opcode = slow.program.kind[own]
    before = addresses(slow.shape(use.base), read)
    if opcode == 5:
        order = slow.program.dimensions[own, : slow.rank(own)].tolist()
        before = before.reshape(slow.shape(use.base)).transpose(order).reshape(-1)
    elif opcode != 4:
        return False
    return bool((before != addresses(slow.shape(own), slow.buffers[own].layout)).any())


def make_program(
    operations: list[tuple[str, tuple[int, ...], list[int]]],
    layouts: dict[int, dict[int, list[int]]],
) -> Propagation:
    """Operations (opcode, shape, reads) and what one configuration gives: {node: {slot: order}}."""
    features = make_nodes([shape for _, shape, _ in operations])
    features[-1, vocabulary.IS_ROOT] = 1
    configurable = sorted(layouts)
    given = np.full((1, len(configurable), vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    for place, node in enumerate(configurable):
        for slot, order in layouts[node].items():
            given[0, place, slot : slot + len(order)] = order
    graph = Graph(
        name="made",
        collection=collection("layout:xla:random"),
        node_features=features,
        node_opcodes=np.array([OPCODE_IDS[name] for name, _, _ in operations], np.uint8),
        edges=np.array([[n, read] for n, (*_, reads) in enumerate(operations) for read in reads]),
        configurable=np.array(configurable),
        configs=encode(given),
        runtimes=None,
    )
    return Propagation(repair_padding(graph))


def layouts_of(propagation: Propagation) -> list[Layout]:
    """Of the nodes' own tensors, in the one configuration."""
    assigned, own = propagation.assign(), propagation.instructions
    count = propagation.graph.num_nodes
    return [unpack(int(assigned.layouts[0, k]), int(own.rank[k])) for k in range(count)]


def copied_nodes(propagation: Propagation) -> list[int]:
    (places,) = np.nonzero(propagation.assign().copies[0])
    return propagation.copied[places].tolist()


def test_what_a_reshape_reads_is_asked_of_a_chain_of_elements() -> None:
    """The chain takes over the order; the parameter cannot, so it is copied; so is the reshape."""
    propagation = make_program(
        [("parameter", (4, 6), []), ("tanh", (4, 6), [0]), ("negate", (4, 6), [1]),
         ("reshape", (24,), [2])],
        {3: {6: [0, 1]}},
    )  # fmt: skip
    assert layouts_of(propagation)[:3] == [(1, 0), (0, 1), (0, 1)]
    assert copied_nodes(propagation) == [0, 2]


def test_a_product_writes_rows_whatever_is_asked_of_it() -> None:
    propagation = make_program(
        [("parameter", (4, 6), []), ("parameter", (6, 5), []), ("dot", (4, 5), [0, 1])],
        {2: {0: [0, 1]}},
    )
    assert layouts_of(propagation)[2] == (1, 0)
    assert copied_nodes(propagation) == [2, 2]  # as it was asked, and back for the result


def test_a_product_may_write_columns_on_other_backends() -> None:
    graph = make_program(
        [("parameter", (4, 6), []), ("parameter", (6, 5), []), ("dot", (4, 5), [0, 1]),
         ("tanh", (4, 5), [2])],
        {2: {0: [0, 1]}},
    ).graph  # fmt: skip
    propagation = Propagation(graph, TPU)
    assert layouts_of(propagation)[2:] == [(0, 1), (0, 1)]
    assert copied_nodes(propagation) == [3]  # what reads it takes its order over, up to the result


def test_a_call_is_inlined_for_each_that_calls_it() -> None:
    """One caller's argument is asked for columns; the other caller's stays as it is."""
    features = make_nodes([(4, 6)] * 6 + [(24,), (4, 6)])
    features[[1, 7], vocabulary.IS_ROOT] = 1
    propagation = make_program(
        [("parameter", (4, 6), []), ("tanh", (4, 6), [0]), ("parameter", (4, 6), []),
         ("negate", (4, 6), [2]), ("call", (4, 6), [1, 3]), ("call", (4, 6), [1, 2]),
         ("reshape", (24,), [4]), ("tuple", (), [5, 6])],
        {6: {6: [0, 1]}},
    )  # fmt: skip
    graph = dataclasses.replace(propagation.graph, node_features=features)
    propagation = Propagation(repair_padding(graph))
    own = propagation.instructions
    bodies = [k for k in range(own.count) if own.node[k] == 1 and own.asked[k, 0] < 0]
    layouts = propagation.assign().layouts[0]
    assert sorted(unpack(int(layouts[k]), 2) for k in bodies) == [(0, 1), (1, 0)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_any_numbers_in_a_file_end_in_layouts(seed: int) -> None:
    """Dimensions that no shape has, edges in circles, opcodes that do not fit: nothing is read
    outside the arrays, and every layout is one of its tensor's rank."""
    random = np.random.default_rng(seed)
    graph = draw_graph(seed)
    features = graph.node_features.copy()
    for columns in (vocabulary.DIMENSIONS, vocabulary.SHAPE_DIMENSIONS, vocabulary.NODE_LAYOUT):
        broken = random.random(len(features)) < 0.4
        features[broken, columns] = random.integers(0, 6, (broken.sum(), 6))
    edges = random.integers(0, graph.num_nodes, graph.edges.shape)
    opcodes = random.permutation(graph.node_opcodes)
    hostile = dataclasses.replace(graph, node_features=features, edges=edges, node_opcodes=opcodes)
    propagation = Propagation(hostile)
    own = propagation.instructions
    for row in propagation.assign().layouts:
        for number, rank in zip(row.tolist(), own.rank.tolist(), strict=True):
            assert number == -1 or sorted(unpack(number, rank)) == list(range(rank))
