"""What joins a reduction: against one instruction after the other, until nothing changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.propagation import library
from solution.features.propagation.backend import CPU, TPU, Backend
from solution.features.propagation.instructions import ASKS
from solution.features.propagation.library import MOST, NOTHING, POOLING, REDUCTION, join_library
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import state_tables
from solution.features.propagation.states import COPY, MADE
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import unpack
from tests.features.propagation.test_loops import make, softmax
from tests.made.graphs import make_nodes

SHAPING = ("broadcast", "reshape")
WORKING = ("add", "tanh", "dot", "reduce", *SHAPING)


class Slow:
    """One configuration: what has joined whom."""

    def __init__(self, propagation: Propagation, states: np.ndarray, layouts: np.ndarray) -> None:
        own, graph = propagation.instructions, propagation.graph
        self.own, self.owner = own, dict.fromkeys(range(own.count), -1)
        self.names = [
            vocabulary.OPCODES[graph.node_opcodes[node]] if node >= 0 and kind != ASKS else ""
            for node, kind in zip(own.node, own.kind, strict=True)
        ]
        self.made = [layouts[states[i], MADE] for i in range(own.count)]
        self.apart = [self.stands_between(u, states, layouts) for u in range(len(own.read))]

    def stands_between(self, use: int, states: np.ndarray, layouts: np.ndarray) -> bool:
        """Whether a copy is read, or a layout is asked for, be it the one that is there."""
        calls = self.own.before[use], self.own.behind[self.own.read[use]]
        asked = any(layouts[states[call], MADE] >= 0 for call in calls if call >= 0)
        return asked or bool(layouts[states[self.own.count + use], COPY] > 0)

    def readers(self, read: int) -> list[tuple[int, bool]]:
        """Who reads it, custom calls left out, and whether something stands in between."""
        uses = np.flatnonzero(self.own.read == read)
        pairs = [(int(self.own.reader[use]), self.apart[use]) for use in uses]
        return [pair for pair in pairs if self.own.kind[pair[0]] != ASKS]

    def is_free(self, number: int) -> bool:
        """Whether it is nobody's and row-major."""
        rank, made = int(self.own.rank[number]), int(self.made[number])
        row_major = rank < 2 or (made >= 0 and unpack(made, rank) == tuple(range(rank))[::-1])
        return self.owner[number] < 0 and row_major

    def run(self) -> np.ndarray:
        for first in reversed(range(self.own.count)):
            reads = (self.own.reader == first).sum()
            if self.names[first] == "reduce" and reads <= 2 and self.owner[first] < 0:
                self.grow(first)
        return np.array([self.owner[number] >= 0 for number in range(self.own.count)])

    def grow(self, first: int) -> None:
        last: int | None = first
        while last is not None:
            self.owner[last] = first
            while found := [n for n in self.owner if self.joins(first, n)]:
                self.owner[found[0]] = first
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
            and all(self.owner[reader] == first and not apart for reader, apart in readers)
        )


def join(graph: Graph, backend: Backend = CPU) -> tuple[Propagation, np.ndarray]:
    """The program, and what its instructions have joined (configs, instructions)."""
    propagation = Propagation(graph, backend)
    return propagation, join_library(propagation, propagation.number())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_what_joins_is_what_only_those_read_that_have_joined(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FEWEST", 0)  # drawn tensors are small
        graph = draw_graph(seed)
        propagation, joined = join(graph)
    numbered = propagation.number()
    for states, found in zip(numbered.numbers, joined, strict=True):
        expected = Slow(propagation, states, numbered.layouts).run()
        np.testing.assert_array_equal(found != NOTHING, expected)


def test_nothing_joins_where_there_is_no_library() -> None:
    """A softmax of 64 rows, as a CPU and as a TPU compile it."""
    assert join(softmax(64, 48, 2))[1].any()
    assert not join(softmax(64, 48, 2), TPU)[1].any()
    assert not state_tables("tpu")(softmax(64, 48, 2)).short_loops.any()


def chain(length: int, rows: int = 128, columns: int = 64) -> Graph:
    """A tensor, `length` times its tanh, and the sum of each row; no layout is asked for."""
    shapes: list[tuple[int, ...]] = [(rows, columns)] * (length + 1) + [(), (rows,), (rows, 1)]
    opcodes = ["parameter", *["tanh"] * length, "constant", "reduce", "reshape"]
    edges = [(k + 1, k) for k in range(length)]
    edges += [(length + 2, length), (length + 2, length + 1), (length + 3, length + 2)]
    features = make_nodes(shapes)
    features[length + 2, vocabulary.DIMENSIONS][0] = 1
    features[length + 3, vocabulary.IS_ROOT] = 1
    return make(features, opcodes, edges, [length + 3], np.full((1, 1, 18), -1, np.int8))


@pytest.mark.parametrize(("rows", "type_", "expected"), [
    (128, "f32", True), (63, "f32", False), (128, "s32", False),
])  # fmt: skip
def test_small_tensors_and_integers_stay_in_loops_of_xlas_own(
    rows: int, type_: str, expected: bool
) -> None:
    graph = chain(3, rows)
    if type_ == "s32":
        features = graph.node_features.copy()
        features[:, library.FLOAT32], features[:, vocabulary.ELEMENT_TYPE.start + 4] = 0, 1
        graph = replace(graph, node_features=features)
    assert join(graph)[1].any() == expected


@pytest.mark.parametrize("length", [40, 200])
def test_a_fusion_ends_where_it_is_too_large(length: int) -> None:
    """What is furthest from the reduction stays outside."""
    propagation, joined = join(chain(length))
    is_tanh = np.isin(propagation.instructions.node, np.arange(1, length + 1))
    found = joined[0, is_tanh] != NOTHING
    assert found.sum() == min(length, MOST - 2)  # the reduction, and what is read from outside
    assert found[::-1][: found.sum()].all()


def test_a_reduction_of_two_tensors_is_none_of_the_librarys() -> None:
    """Such as a maximum and where it is."""
    graph = chain(2)
    two = replace(graph, edges=np.array([*graph.edges.tolist(), (4, 0)], np.int64))
    assert join(graph)[1].any()
    assert not join(two)[1].any()


@pytest.mark.parametrize(("made", "expected"), [(64, POOLING), (63, NOTHING)])
def test_windows_that_overlap_or_reach_over_the_edge_are_none_of_the_librarys(
    made: int, expected: int
) -> None:
    """A tanh, and the largest of two rows each."""
    features = make_nodes([(128, 64), (128, 64), (), (made, 64), (made * 64,)])
    features[3, vocabulary.WINDOW_SIZE][:2] = 2, 1
    features[4, vocabulary.IS_ROOT] = 1
    opcodes = ["parameter", "tanh", "constant", "reduce-window", "reshape"]
    edges = [(1, 0), (3, 1), (3, 2), (4, 3)]
    graph = make(features, opcodes, edges, [4], np.full((1, 1, 18), -1, np.int8))
    propagation, (joined,) = join(graph)
    found = dict(zip(propagation.instructions.node.tolist(), joined.tolist(), strict=True))
    assert found[1] == found[3] == expected


def test_what_joins_a_reduction_is_told_from_what_joins_a_pooling() -> None:
    _, joined = join(chain(3, rows=256))
    assert (joined == REDUCTION).sum() == 4 + 1  # with the reshape of its result
