"""Layouts handed through programs, and what joins a reduction: against slow ways and by hand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS, OPCODES
from solution.features.operations import NONE, num_bytes
from solution.features.preparation import repair_padding
from solution.features.propagation import assigning, library
from solution.features.propagation import propagation as propagating
from solution.features.propagation.backend import CPU, TPU, Backend
from solution.features.propagation.instructions import ASKS, KEEPS
from solution.features.propagation.library import NOTHING, join_library, mark_split
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.state_table import (
    ENOUGH,
    FEATURES,
    Loops,
    find_loops,
    state_tables,
)
from solution.features.propagation.states import COPY, FIRST, MADE, find_points
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, Slow, addresses, row_major, unpack
from tests.features.propagation.slow_tiled import SlowTiled
from tests.made.builder import Builder, Shape


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
@given(st.integers(0, 10**6), st.sampled_from([CPU, TPU]), st.sampled_from([1, 8]), st.booleans())
def test_states_are_those_of_the_slow_way(
    seed: int, backend: Backend, capacity: int, has_memory: bool
) -> None:
    """Also with too little capacity for all states at once, and with memory for the layouts of one
    configuration alone."""
    graph = draw_graph(seed)
    propagation = Propagation(graph, backend)
    ops = propagation.instructions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagating, "CAPACITY", capacity)
        patch.setattr(assigning, "MOST_BYTES", assigning.MOST_BYTES if has_memory else 0)
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


SHAPING = ("broadcast", "reshape")
WORKING = ("add", "tanh", "dot", "reduce", *SHAPING)


class SlowJoining:
    """One configuration: what has joined whom."""

    def __init__(self, propagation: Propagation, states: np.ndarray, layouts: np.ndarray) -> None:
        ops = propagation.instructions
        self.ops, self.opser = ops, dict.fromkeys(range(ops.number), -1)
        # an inserted transpose has the node of the tensor that it reads, but an opcode of its own
        self.names = [
            vocabulary.OPCODES[opcode] if opcode >= 0 and kind != ASKS else ""
            for opcode, kind in zip(ops.opcodes, ops.kind, strict=True)
        ]
        self.made = [layouts[states[i], MADE] for i in range(ops.number)]
        self.apart = [self.stands_between(u, states, layouts) for u in range(len(ops.read))]

    def stands_between(self, use: int, states: np.ndarray, layouts: np.ndarray) -> bool:
        """Whether a copy is read, or a layout is asked for, be it the one that is there."""
        calls = self.ops.before[use], self.ops.behind[self.ops.read[use]]
        asked = any(layouts[states[call], MADE] >= 0 for call in calls if call >= 0)
        return asked or bool(layouts[states[self.ops.number + use], COPY] > 0)

    def readers(self, read: int) -> list[tuple[int, bool]]:
        """Who reads it, custom calls left out, and whether something stands in between."""
        uses = np.flatnonzero(self.ops.read == read)
        pairs = [(int(self.ops.reader[use]), self.apart[use]) for use in uses]
        return [pair for pair in pairs if self.ops.kind[pair[0]] != ASKS]

    def is_free(self, number: int) -> bool:
        """Whether it is nobody's and row-major."""
        rank, made = int(self.ops.rank[number]), int(self.made[number])
        row_major = rank < 2 or (made >= 0 and unpack(made, rank) == tuple(range(rank))[::-1])
        return self.opser[number] < 0 and row_major

    def run(self) -> np.ndarray:
        for first in reversed(range(self.ops.number)):
            reads = (self.ops.reader == first).sum()
            if self.names[first] == "reduce" and reads <= 2 and self.opser[first] < 0:
                self.grow(first)
        return np.array([self.opser[number] >= 0 for number in range(self.ops.number)])

    def grow(self, first: int) -> None:
        last: int | None = first
        while last is not None:
            self.opser[last] = first
            while found := [n for n in self.opser if self.joins(first, n)]:
                self.opser[found[0]] = first
            readers = self.readers(last)
            last = readers[0][0] if len({reader for reader, _ in readers}) == 1 else None
            if last is not None and (
                any(apart for _, apart in readers)
                or self.names[last] not in WORKING
                or not self.is_free(last)
            ):
                last = None

    def joins(self, first: int, number: int) -> bool:
        readers = self.readers(number)
        return (
            self.names[number] in WORKING
            and self.is_free(number)
            and bool(readers)
            and all(self.opser[reader] == first and not apart for reader, apart in readers)
        )


def join(graph: Graph, backend: Backend = CPU) -> tuple[Propagation, np.ndarray]:
    """The program, and what its instructions have joined (configs, instructions)."""
    propagation = Propagation(graph, backend)
    return propagation, join_library(propagation, propagation.number())


@settings(max_examples=40, deadline=None)
@example(223671)  # with transposes and reshapes that the backend inserts
@given(st.integers(0, 10**6))
def test_what_joins_is_what_only_those_read_that_have_joined(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FEWEST", 0)  # drawn tensors are small
        graph = draw_graph(seed, special=False)
        propagation, joined = join(graph)
    numbered = propagation.number()
    for states, found in zip(numbered.numbers, joined, strict=True):
        expected = SlowJoining(propagation, states, numbered.layouts).run()
        np.testing.assert_array_equal(found != NOTHING, expected)


def in_memory(shape: Shape, layout: Layout) -> np.ndarray:
    """The positions (elements, rank) of a tensor's elements, in the order of their addresses."""
    order = np.argsort(addresses(shape, layout).ravel())
    return np.array(list(np.ndindex(shape))).reshape(len(order), len(shape))[order]


def count_alike(positions: np.ndarray) -> int:
    """How many elements from the first on are at the same positions (elements, dimensions)."""
    differs = (positions != positions[0]).any(axis=1)
    return int(np.argmax(differs)) if differs.any() else len(positions)


def sum_slowly(shape: Shape, layout: Layout, summed: list[int]) -> tuple[bool, bool, int]:
    """Whether anything is summed, whether its elements are contiguous, and the run."""
    positions = in_memory(shape, layout)
    kept = [axis for axis in range(len(shape)) if axis not in summed]
    alike = [count_alike(positions[:, axes]) for axes in (kept, summed)]
    sums = bool(np.prod([shape[axis] for axis in summed]) > 1)
    contiguous = sums and alike[0] > 1
    return sums, contiguous, alike[0] if contiguous else alike[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_run_is_what_a_reduction_finds_in_memory(seed: int) -> None:
    graph = draw_graph(seed)
    propagation = Propagation(graph)
    ops, numbered = propagation.instructions, propagation.number()
    points = find_points(ops, numbered.point)
    by_itself = np.full(len(numbered.point), NOTHING)
    loops = find_loops(graph, ops, points, numbered.layouts, by_itself)
    for state, point in enumerate(numbered.point.tolist()):
        is_reduce = (
            point < ops.number
            and ops.is_programs[point]
            and ops.node[point] >= 0
            and graph.node_opcodes[ops.node[point]] == OPCODE_IDS["reduce"]
        )
        if not is_reduce:
            assert not loops.sums[state]
            continue
        read, number = points.read[state, 0], int(numbered.layouts[state, FIRST])
        shape = tuple(ops.sizes[read, : ops.rank[read]].tolist())
        if number >= 0:
            summed = [axis for axis in ops.dimensions[point].tolist() if axis >= 0]
            sums, contiguous, run = sum_slowly(shape, unpack(number, len(shape)), summed)
            assert (bool(loops.sums[state]), bool(loops.contiguous[state])) == (sums, contiguous)
            if sums:
                assert loops.run[state] == pytest.approx(np.log2(run))


def softmax(rows: int, columns: int, heads: int) -> Graph:
    """exp(x - max(x)) over the columns, then a reshape whose input is requested in two layouts."""
    program, shape = Builder(), (rows, columns, heads)
    x, start = program.add("parameter", shape), program.add("constant", ())
    highest = program.add("reduce", (rows, heads), x, start, listed=[1])
    spread = program.add("broadcast", shape, highest, listed=[0, 2])
    result = program.add("exponential", shape, program.add("subtract", shape, x, spread))
    flat = program.add("reshape", (rows * columns * heads,), result)
    layouts = np.full((2, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[:, 6:9] = (2, 1, 0), (1, 0, 2)
    return repair_padding(program.build({flat: layouts}, root=flat))


def loops_at(graph: Graph, node: int) -> tuple[Loops, np.ndarray]:
    """Of the node's instruction: the loops of all states, and its state in each configuration."""
    propagation = Propagation(graph)
    ops, numbered = propagation.instructions, propagation.number()
    point = int(np.flatnonzero((ops.node == node) & ops.is_programs)[0])
    joins = np.full(len(numbered.point), NOTHING)  # of these graphs, one for each state
    joins[numbered.numbers[:, : ops.number]] = join_library(propagation, numbered)
    points = find_points(ops, numbered.point)
    loops = find_loops(graph, ops, points, numbered.layouts, joins)
    return loops, numbered.numbers[:, point]


def test_the_library_runs_along_the_contiguous_dimension() -> None:
    """Row-major by its two heads, which is short; in another layout not at all."""
    for heads, expected in ((2, 1 / 2 - 1 / ENOUGH), (ENOUGH, 0.0)):
        loops, (row_major, other) = loops_at(softmax(64, 48, heads), 4)
        assert loops.at_once[row_major]
        assert loops.run[row_major] == np.log2(heads)
        assert loops.short[row_major] == pytest.approx(expected)
        assert not loops.at_once[other]
        assert loops.short[other] == 0


class SlowSplitting:
    """The layouts that a program is read with in one configuration."""

    def __init__(self, propagation: Propagation, numbered: Numbered, row: int) -> None:
        self.ops, self.states = propagation.instructions, numbered.numbers[row]
        self.layouts = numbered.layouts
        self.position = np.argsort(self.ops.order)  # in which instructions are read

    def name(self, number: int) -> str:
        return OPCODES.get(int(self.ops.opcodes[number]), "")

    def find(self, number: int) -> Layout:
        """What is made has this layout before any is assigned."""
        ops, plain = self.ops, row_major(self.ops.rank[number])
        uses = [
            use
            for use in range(ops.use_starts[number], ops.use_starts[number + 1])
            if ops.rank[ops.read[use]] == ops.rank[number]
        ]
        if self.name(number) == "transpose" and uses:
            order = ops.dimensions[number].tolist()
            return tuple(order.index(axis) for axis in self.read(uses[0]))
        if self.name(number) in ("tanh", "add") and uses:
            filled = [self.name(ops.read[use]) in ("broadcast", "constant") for use in uses]
            nodes = ops.node[ops.read[uses]].tolist()
            first = min(range(len(uses)), key=lambda k: (filled[k], nodes[k], -uses[k]))
            return self.read(uses[first])
        return plain

    def read(self, use: int) -> Layout:
        """As it is read: what is asked for in front of it, else behind it, else what it has.

        Of an argument of a call, which stands behind the computation that is called, nothing.
        """
        read = int(self.ops.read[use])
        is_argument = self.position[read] > self.position[self.ops.reader[use]]
        calls = [self.ops.before[use], *([] if is_argument else [self.ops.behind[read]])]
        for call in calls:
            if call >= 0 and self.layouts[self.states[call], MADE] >= 0:
                return unpack(int(self.layouts[self.states[call], MADE]), self.ops.rank[call])
        return row_major(self.ops.rank[read]) if is_argument else self.find(read)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_read_otherwise_than_row_major_is_split(seed: int) -> None:
    propagation = Propagation(draw_graph(seed, special=False))
    ops, numbered = propagation.instructions, propagation.number()
    is_reduce = np.array([OPCODES.get(int(opcode)) == "reduce" for opcode in ops.opcodes])
    is_reduce &= ops.is_programs & (ops.main[:, 0] >= 0)
    split = mark_split(ops, numbered, is_reduce)
    assert not split[:, ~is_reduce].any()
    for row, found in enumerate(split):
        slow = SlowSplitting(propagation, numbered, row)
        for number in np.flatnonzero(is_reduce).tolist():
            use = int(ops.main[number, 0])
            assert found[number] == (slow.read(use) != row_major(ops.rank[ops.read[use]]))
