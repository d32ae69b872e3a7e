"""Which reductions are split: against layouts as a program is read with them, one after another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODES
from solution.features.propagation.library import SPLIT, join_library
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.splitting import FULL, mark_split, weigh_windows
from solution.features.propagation.states import MADE
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import Layout, row_major, unpack
from tests.features.propagation.test_loops import make
from tests.made.graphs import make_nodes


class Slow:
    """The layouts that a program is read with in one configuration."""

    def __init__(self, propagation: Propagation, numbered: Numbered, row: int) -> None:
        self.own, self.states = propagation.instructions, numbered.numbers[row]
        self.layouts = numbered.layouts
        self.place = np.argsort(self.own.order)  # in which instructions are read

    def name(self, number: int) -> str:
        return OPCODES.get(int(self.own.opcodes[number]), "")

    def find(self, number: int) -> Layout:
        """What is made has this layout before any is assigned."""
        own, plain = self.own, row_major(self.own.rank[number])
        uses = [
            use
            for use in range(own.use_starts[number], own.use_starts[number + 1])
            if own.rank[own.read[use]] == own.rank[number]
        ]
        if self.name(number) == "transpose" and uses:
            order = own.dimensions[number].tolist()
            return tuple(order.index(axis) for axis in self.read(uses[0]))
        if self.name(number) in ("tanh", "add") and uses:
            filled = [self.name(own.read[use]) in ("broadcast", "constant") for use in uses]
            nodes = own.node[own.read[uses]].tolist()
            first = min(range(len(uses)), key=lambda k: (filled[k], nodes[k], -uses[k]))
            return self.read(uses[first])
        return plain

    def read(self, use: int) -> Layout:
        """As it is read: what is asked for in front of it, else behind it, else what it has.

        Of an argument of a call, which stands behind the computation that is called, nothing.
        """
        read = int(self.own.read[use])
        is_argument = self.place[read] > self.place[self.own.reader[use]]
        calls = [self.own.before[use], *([] if is_argument else [self.own.behind[read]])]
        for call in calls:
            if call >= 0 and self.layouts[self.states[call], MADE] >= 0:
                return unpack(int(self.layouts[self.states[call], MADE]), self.own.rank[call])
        return row_major(self.own.rank[read]) if is_argument else self.find(read)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_read_otherwise_than_row_major_is_split(seed: int) -> None:
    propagation = Propagation(draw_graph(seed))
    own, numbered = propagation.instructions, propagation.number()
    is_reduce = np.array([OPCODES.get(int(opcode)) == "reduce" for opcode in own.opcodes])
    is_reduce &= own.is_programs & (own.main[:, 0] >= 0)
    split = mark_split(own, numbered, is_reduce)
    assert not split[:, ~is_reduce].any()
    for row, found in enumerate(split):
        slow = Slow(propagation, numbered, row)
        for number in np.flatnonzero(is_reduce).tolist():
            use = int(own.main[number, 0])
            assert found[number] == (slow.read(use) != row_major(own.rank[own.read[use]]))


def softmax(columns: int, between: str = "tanh") -> Graph:
    """What is asked for, something between, and its sums; the last is asked for as it is."""
    shape = (64, 16, columns)
    shapes = [(64 * 16 * columns,), shape, shape, (), shape[:2], (64 * 16,)]
    features = make_nodes([tuple(one) for one in shapes])
    features[4, vocabulary.DIMENSIONS][0] = 2
    features[5, vocabulary.IS_ROOT] = 1
    opcodes = ["parameter", "reshape", between, "constant", "reduce", "reshape"]
    edges = [(1, 0), (2, 1), (4, 2), (4, 3), (5, 4)]
    layouts = np.full((3, 1, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[0, 0, :3], layouts[1, 0, :3] = (1, 2, 0), (2, 1, 0)
    return make(features, opcodes, edges, [1], layouts)


@pytest.mark.parametrize(("columns", "between", "expected"), [
    (40, "tanh", True), (32, "tanh", False), (40, "reshape", False),
])  # fmt: skip
def test_long_sums_are_split_behind_a_request_for_another_layout(
    columns: int, between: str, expected: bool
) -> None:
    """But neither behind one for the layout that it has, nor behind what makes a new tensor."""
    graph = softmax(columns, between)
    propagation = Propagation(graph)
    joined = join_library(propagation, propagation.number())[graph.layouts.rows]
    assert ((joined == SPLIT).sum(axis=1) == [expected, 0, 0]).all()


@pytest.mark.parametrize(("columns", "expected"), [(32, 0), (33, 1), (40, 1), (64, FULL)])
def test_windows_that_fill_what_is_summed_cost_less(columns: int, expected: float) -> None:
    own = Propagation(softmax(columns)).instructions
    assert weigh_windows(own).sum() == expected
