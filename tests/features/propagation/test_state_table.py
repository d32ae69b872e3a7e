"""States of whole programs: against the slow way of layout assignment, one state at a time."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solution.features.operands import NONE, find_operands
from solution.features.propagation import library
from solution.features.propagation import propagation as propagating
from solution.features.propagation.backend import CPU
from solution.features.propagation.library import join_library
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import FEATURES, state_tables
from solution.features.work import num_bytes
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, Slow, addresses, unpack
from tests.features.propagation.test_propagation import find_copies, given_layouts

NAMES = [feature.name for feature in FEATURES]
State = tuple[Layout | None, ...]


def slow_states(propagation: Propagation, row: int) -> list[tuple[State, bool]]:
    """The layouts at each place in one configuration, and whether it is copied there."""
    own = propagation.instructions
    slow = Slow(own, CPU, given_layouts(propagation, row))
    slow.run()
    marks = find_copies(slow, propagation)
    uses = [use for used in slow.uses for use in used]
    states: list[tuple[State, bool]] = []
    for number in range(own.count):
        main = [use - own.use_starts[number] for use in own.main[number] if use != NONE]
        read = [slow.uses[number][place].layout for place in main]
        layouts = (slow.buffers[number].layout, *read, *[None] * (2 - len(read)))
        states.append((layouts, marks[len(uses) + number]))
    for use, mark in zip(uses, marks, strict=False):
        states.append(((use.source.layout, use.layout, None) if mark else (None,) * 3, mark))
    return states


def as_dimensions(number: int, rank: int) -> Layout | None:
    return unpack(number, rank) if number >= 0 else None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 8]))
def test_states_are_those_of_the_slow_way(seed: int, room: int) -> None:
    """With too little room for all states at once, too."""
    graph = draw_graph(seed)
    propagation = Propagation(graph)
    own = propagation.instructions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagating, "ROOM", room)
        found = propagation.number()
    ranks = [[own.rank[n], *own.rank[own.read[own.main[n][own.main[n] != NONE]]], 0, 0][:3]
             for n in range(own.count)]  # fmt: skip
    ranks += [[own.rank[read]] * 3 for read in own.read]
    for row in range(graph.num_configs):
        states = found.numbers[graph.layouts.rows[row]]
        np.testing.assert_array_equal(found.place[states], np.arange(len(states)))
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
    numbered[:, : propagation.instructions.count] += 10**6 * joined.astype(np.int64)
    varying = (numbered != numbered[0]).any(axis=0)
    assert table.numbers.shape == numbered[:, varying].shape
    for column, states in zip(table.numbers.T, numbered[:, varying].T, strict=True):
        np.testing.assert_array_equal(
            column[:, None] == column[None], states[:, None] == states[None]
        )
    count = propagation.instructions.count
    assert table.instructions == varying[:count].sum()
    assert np.isfinite(table.features).all()
    assert (np.unique(table.numbers) == np.arange(len(table.features))).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_main_operands_are_those_of_a_product_or_the_largest(seed: int) -> None:
    graph = draw_graph(seed)
    own, operands = Propagation(graph).instructions, find_operands(graph)
    for instruction in np.flatnonzero(own.is_programs)[:-1].tolist():
        uses = range(own.use_starts[instruction], own.use_starts[instruction + 1])
        read = [int(own.node[own.read[use]]) for use in uses]
        main = [read[use - own.use_starts[instruction]] for use in own.main[instruction]
                if use != NONE]  # fmt: skip
        assert len(main) == min(2, len(read))
        node = own.node[instruction]
        if operands.kernel[node] != NONE and len(read) == 2:
            named = [operands.input[node], operands.kernel[node]]
            # Of what is equal, such as two tanh of one tensor, there is one instance.
            np.testing.assert_array_equal(graph.node_opcodes[main], graph.node_opcodes[named])
            np.testing.assert_array_equal(graph.node_features[main], graph.node_features[named])
        elif operands.input[node] == NONE:
            size = num_bytes(graph)
            assert [size[n] for n in main] == sorted((size[n] for n in read), reverse=True)[:2]


def read_apart(shape: tuple[int, ...], there: Layout, written: Layout) -> float:
    """How far apart two elements lie in what is there that lie beside each other when copied."""
    read, write = (addresses(shape, layout).ravel() for layout in (there, written))
    order = read[np.argsort(write)]
    return math.log2(abs(int(order[1] - order[0]))) if len(order) > 1 else 0.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_strides_are_how_far_apart_a_copy_reads(seed: int) -> None:
    graph = draw_graph(seed)
    propagation, table = Propagation(graph), state_tables("cpu")(graph)
    own, numbered = propagation.instructions, propagation.number()
    varying = np.flatnonzero((numbered.numbers != numbered.numbers[0]).any(axis=0))
    for column, place in enumerate(varying.tolist()):
        for number, state in zip(numbered.numbers[:, place], table.numbers[:, column], strict=True):
            there, written, _, copy = numbered.layouts[number].tolist()
            expected = 0.0
            if place >= own.count and copy:
                base = own.read[place - own.count]
                shape = tuple(own.sizes[base, : own.rank[base]].tolist())
                both = (unpack(layout, len(shape)) for layout in (there, written))
                expected = read_apart(shape, *both)
            assert table.strides[state] == pytest.approx(expected, abs=1e-5)


def describe_slowly(shape: tuple[int, ...], layout: Layout) -> dict[str, float]:
    """Strides by where elements lie."""
    place = addresses(shape, layout).reshape(shape)
    found = {"row_major": float(layout == tuple(range(len(shape)))[::-1])}
    for k, size in enumerate(reversed(shape[-4:]), start=1):
        found[f"size_{k}"] = math.log2(size)
        one = tuple(int(axis == len(shape) - k) for axis in range(len(shape)))
        if size > 1:
            found[f"stride_{k}"] = math.log2(place[one] - place.flat[0])
    large = [shape[dimension] for dimension in layout if shape[dimension] > 1]
    found["minor"], found["second_minor"] = (math.log2(s) for s in (*large, 1, 1)[:2])
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_columns_are_what_elements_show(seed: int) -> None:
    graph = draw_graph(seed)
    propagation, table = Propagation(graph), state_tables("cpu")(graph)
    own, numbered = propagation.instructions, propagation.number()
    varying = np.flatnonzero((numbered.numbers != numbered.numbers[0]).any(axis=0))
    varying = varying[varying < own.count]
    assume(len(varying))
    for column, place in enumerate(varying.tolist()):
        number = numbered.layouts[numbered.numbers[0, place], 0]
        row = dict(zip(NAMES, table.features[table.numbers[0, column]].tolist(), strict=True))
        shape = tuple(own.sizes[place, : own.rank[place]].tolist())
        if number >= 0:
            expected = describe_slowly(shape, unpack(int(number), len(shape)))
            found = {name: row[f"state_made_{name}"] for name in expected}
            assert found == pytest.approx(expected, abs=1e-5)
        size = num_bytes(graph)[own.node[place]]
        assert row["state_made_bytes"] == pytest.approx(math.log2(1 + size), abs=1e-5)
