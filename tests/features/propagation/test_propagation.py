"""Layouts handed through whole programs: against the slow way, and against hand-worked ones."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.features.operations import NONE, num_bytes
from solution.features.preparation import repair_padding
from solution.features.propagation import library
from solution.features.propagation import propagation as propagating
from solution.features.propagation.backend import CPU, TPU, Backend
from solution.features.propagation.instructions import KEEPS
from solution.features.propagation.library import join_library
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import FEATURES, state_tables
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, Slow, addresses, unpack
from tests.features.propagation.slow_tiled import SlowTiled
from tests.made.builder import Builder


def given_layouts(propagation: Propagation, row: int) -> list[Layout | None]:
    """What each custom call asks for in a configuration, read from the configuration."""
    ops, graph = propagation.instructions, propagation.graph
    config = graph.layouts.expand()[row].reshape(-1, 3, 6)
    found: list[Layout | None] = []
    for rank, (position, tensor) in zip(ops.rank, ops.asked, strict=True):
        layout = config[position, tensor] if position >= 0 else np.array([-1])
        asked = layout[layout >= 0].tolist()
        missing = [axis for axis in reversed(range(rank)) if axis not in asked]
        fits = asked and sorted([*asked, *missing]) == list(range(rank))
        found.append((*asked, *missing) if fits else None)
    return found


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
    return marks + [_moves(slow, op) for op in range(slow.program.number)]


def _moves(slow: Slow, op: int) -> bool:
    """Whether a reshape or a transpose puts an element elsewhere."""
    if len(slow.uses[op]) != 1 or slow.rank(op) < 2 or not slow.buffers[op].layout:
        return False
    (use,) = slow.uses[op]
    read = use.layout or use.source.layout or tuple(range(slow.rank(use.base)))
    opcode = slow.program.kind[op]
    before = addresses(slow.shape(use.base), read)
    if opcode == 5:
        order = slow.program.dimensions[op, : slow.rank(op)].tolist()
        before = before.reshape(slow.shape(use.base)).transpose(order).reshape(-1)
    elif opcode != 4:
        return False
    return bool((before != addresses(slow.shape(op), slow.buffers[op].layout)).any())


def test_a_call_is_inlined_for_each_that_calls_it() -> None:
    """One caller's argument is requested by columns; the other caller's stays as it is."""
    program = Builder()
    for opcode, shape, *reads in (
        ("parameter", (4, 6)), ("tanh", (4, 6), 0), ("parameter", (4, 6)), ("negate", (4, 6), 2),
        ("call", (4, 6), 1, 3), ("call", (4, 6), 1, 2), ("reshape", (24,), 4), ("tuple", (), 5, 6),
    ):  # fmt: skip
        program.add(opcode, shape, *reads)
    layouts = np.full((1, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[0, 6:8] = 0, 1
    graph = program.build({6: layouts})
    features = graph.node_features.copy()
    features[[1, 7], vocabulary.IS_ROOT] = 1
    graph = dataclasses.replace(graph, node_features=features)
    propagation = Propagation(repair_padding(graph))
    ops = propagation.instructions
    bodies = [k for k in range(ops.number) if ops.node[k] == 1 and ops.asked[k, 0] < 0]
    results = propagation.number().results[0]
    assert sorted(unpack(int(results[k]), 2) for k in bodies) == [(0, 1), (1, 0)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([CPU, TPU]))
def test_any_numbers_in_a_file_end_in_layouts(seed: int, backend: Backend) -> None:
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
    propagation = Propagation(hostile, backend)
    ops = propagation.instructions
    for row in propagation.number().results:
        for number, rank in zip(row.tolist(), ops.rank.tolist(), strict=True):
            assert number == -1 or sorted(unpack(number, rank)) == list(range(rank))


NAMES = [feature.name for feature in FEATURES]
State = tuple[Layout | None, ...]


def slow_states(propagation: Propagation, row: int) -> list[tuple[State, bool]]:
    """Each point's layouts in one configuration, and whether its tensor is copied."""
    ops = propagation.instructions
    kind = SlowTiled if propagation.backend.device_layouts else Slow
    slow = kind(ops, propagation.backend, given_layouts(propagation, row))
    slow.run()
    if isinstance(slow, SlowTiled):
        marks = slow.find_copies(propagation._free)
    else:
        marks = find_copies(slow, propagation)
    uses = [use for used in slow.uses for use in used]
    states: list[tuple[State, bool]] = []
    for number in range(ops.number):
        main = [use - ops.use_starts[number] for use in ops.main[number] if use != NONE]
        read = [slow.uses[number][use].layout for use in main]
        layouts = (slow.buffers[number].layout, *read, *[None] * (2 - len(read)))
        states.append((layouts, marks[len(uses) + number]))
    for use, mark in zip(uses, marks, strict=False):
        states.append(((use.source.layout, use.layout, None) if mark else (None,) * 3, mark))
    return states


def as_dimensions(number: int, rank: int) -> Layout | None:
    return unpack(number, rank) if number >= 0 else None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([CPU, TPU]), st.sampled_from([1, 8]))
def test_states_are_those_of_the_slow_way(seed: int, backend: Backend, capacity: int) -> None:
    """Also with too little capacity for all states at once."""
    graph = draw_graph(seed)
    propagation = Propagation(graph, backend)
    ops = propagation.instructions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagating, "CAPACITY", capacity)
        found = propagation.number()
    ranks = [[ops.rank[n], *ops.rank[ops.read[ops.main[n][ops.main[n] != NONE]]], 0, 0][:3]
             for n in range(ops.number)]  # fmt: skip
    ranks += [[ops.rank[read]] * 3 for read in ops.read]
    for row in range(graph.num_configs):
        states = found.numbers[graph.layouts.rows[row]]
        np.testing.assert_array_equal(found.point[states], np.arange(len(states)))
        layouts = found.layouts[states]
        fast = [
            (tuple(as_dimensions(n, r) for n, r in zip(line, rank, strict=False)), bool(line[3]))
            for line, rank in zip(layouts.tolist(), ranks, strict=True)
        ]
        assert fast == slow_states(propagation, row)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_table_has_what_varies(seed: int) -> None:
    """Two configurations have the same rows where their states are the same, and only there.

    An instruction that has joined a reduction is in another state than one that has not.
    """
    graph = draw_graph(seed)
    propagation = Propagation(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FEWEST", 0)  # drawn tensors are small
        table = state_tables("cpu")(graph)
        joined = join_library(propagation, propagation.number())
    numbered = propagation.number().numbers.astype(np.int64)
    numbered[:, : propagation.instructions.number] += 10**6 * joined.astype(np.int64)
    varying = (numbered != numbered[0]).any(axis=0)
    assert table.numbers.shape == numbered[:, varying].shape
    for column, states in zip(table.numbers.T, numbered[:, varying].T, strict=True):
        np.testing.assert_array_equal(
            column[:, None] == column[None], states[:, None] == states[None]
        )
    count = propagation.instructions.number
    assert table.instructions == varying[:count].sum()
    assert np.isfinite(table.features).all()
    assert (np.unique(table.numbers) == np.arange(len(table.features))).all()


def describe_slowly(shape: tuple[int, ...], layout: Layout) -> dict[str, float]:
    """Strides by where elements lie."""
    address = addresses(shape, layout).reshape(shape)
    found = {"row_major": float(layout == tuple(range(len(shape)))[::-1])}
    for k, size in enumerate(reversed(shape[-4:]), start=1):
        found[f"size_{k}"] = math.log2(size)
        one = tuple(int(axis == len(shape) - k) for axis in range(len(shape)))
        if size > 1:
            found[f"stride_{k}"] = math.log2(address[one] - address.flat[0])
    large = [shape[dimension] for dimension in layout if shape[dimension] > 1]
    found["minor"], found["second_minor"] = (math.log2(s) for s in (*large, 1, 1)[:2])
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_columns_are_what_elements_show(seed: int) -> None:
    graph = draw_graph(seed)
    propagation, table = Propagation(graph), state_tables("cpu")(graph)
    ops, numbered = propagation.instructions, propagation.number()
    varying = np.flatnonzero((numbered.numbers != numbered.numbers[0]).any(axis=0))
    varying = varying[varying < ops.number]
    assume(len(varying))
    for column, op in enumerate(varying.tolist()):
        number = numbered.layouts[numbered.numbers[0, op], 0]
        row = dict(zip(NAMES, table.features[table.numbers[0, column]].tolist(), strict=True))
        shape = tuple(ops.sizes[op, : ops.rank[op]].tolist())
        if number >= 0:
            expected = describe_slowly(shape, unpack(int(number), len(shape)))
            found = {name: row[f"state_made_{name}"] for name in expected}
            assert found == pytest.approx(expected, abs=1e-5)
        size = num_bytes(graph)[ops.node[op]]
        assert row["state_made_bytes"] == pytest.approx(math.log2(1 + size), abs=1e-5)
