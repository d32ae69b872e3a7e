"""The gradients of products are told from the products, whatever the sizes and the order."""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.gradients import Dot, Dots, find_gradients
from solution.features.operations import _guess, _label, find_operands, tensor_ranks
from tests.made.builder import Builder, Shape


def take_step(
    batch: list[int], left: list[int], right: list[int], summed: list[int], is_left_first: bool
) -> tuple[Graph, dict[int, tuple[int, int, Shape, Shape]]]:
    """y = x w, and its gradients; of these the operands and what either of them sums."""
    program, b, m, n, k = Builder(), len(batch), len(left), len(right), len(summed)
    x = program.add("parameter", (*batch, *left, *summed))
    w = program.add("parameter", (*batch, *summed, *right))
    y = program.add("dot", (*batch, *left, *right), x, w)
    slope = program.add("multiply", (*batch, *left, *right), y, program.add("tanh", (1,), y))
    of_x = program.add("dot", (*batch, *left, *summed), slope, w)
    batches, rows = tuple(range(b)), tuple(range(b, b + m))
    if is_left_first:  # as TensorFlow multiplies: x' and then the gradient of y
        of_w = program.add("dot", (*batch, *summed, *right), x, slope)
        operands = (x, slope)
    else:  # as jax does, which transposes the result
        of_w = program.add("dot", (*batch, *right, *summed), slope, x)
        operands = (slope, x)
        program.transpose(of_w, (*batches, *range(b + n, b + n + k), *range(b, b + n)))
    columns_of_slope = tuple(range(b + m, b + m + n))
    columns_of_w = tuple(range(b + k, b + k + n))
    expected = {of_x: (slope, w, columns_of_slope, columns_of_w), of_w: (*operands, rows, rows)}
    return program.build(), expected


def test_a_transposition_of_dimensions_that_are_not_there_says_nothing() -> None:
    graph, expected = take_step([], [8], [8], [8], is_left_first=False)
    features = graph.node_features.copy()
    transposed = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["transpose"])
    features[transposed, vocabulary.DIMENSIONS] = 5
    operands = find_operands(dataclasses.replace(graph, node_features=features))
    for node, (first, second, *_) in expected.items():
        assert {operands.input[node], operands.kernel[node]} == {first, second}


def test_transpositions_that_read_themselves_end_as_well() -> None:
    """Edges need not be those of a program; a file may hold any."""
    graph, expected = take_step([], [8], [8], [8], is_left_first=False)
    nodes = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"])
    opcodes = graph.node_opcodes.copy()
    opcodes[nodes] = OPCODE_IDS["transpose"]
    features = graph.node_features.copy()
    features[nodes, vocabulary.DIMENSIONS.start] = 1
    edges = np.vstack([graph.edges, np.column_stack([nodes, nodes])])
    operands = find_operands(
        dataclasses.replace(graph, node_opcodes=opcodes, node_features=features, edges=edges)
    )
    for node, (first, second, *_) in expected.items():
        assert {operands.input[node], operands.kernel[node]} == {first, second}


def test_what_a_module_says_of_a_gradient_is_believed() -> None:
    graph, expected = take_step([], [8], [8], [8], is_left_first=False)
    summed = np.full((graph.num_nodes, 2, vocabulary.SUMMED), -1, np.int8)
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["dot"]):
        summed[node, :, 0] = (1, 0)
    for node, (_, _, *dimensions) in expected.items():
        summed[node, :, 0] = [each[0] for each in dimensions]
    told = dataclasses.replace(graph, summed=summed)
    for node, (first, second, *_) in expected.items():
        found = find_operands(told)
        assert (found.input[node], found.kernel[node]) == (first, second)
    changed = summed.copy()
    (node, *_) = expected
    changed[node, :, 0] = (0, 1)
    letters = find_operands(dataclasses.replace(graph, summed=changed)).letters[node]
    assert letters.summed == ((0,), (1,))


class Pairs(Dots):
    """All dots that read one tensor are compared in pairs, and what depends on one is searched."""

    def list_gradients(self, dot: Dot) -> Iterator[Dot]:
        if dot.left == dot.right:
            return
        later: dict[int, dict[int, list[Dot]]] = defaultdict(lambda: defaultdict(list))
        for kept, wanted in ((dot.left, dot.right), (dot.right, dot.left)):
            for node, pair in self._guess.items():
                slope = pair[1] if pair[0] == kept else pair[0]
                if kept in pair and node > dot.node and self._shape(slope) == self._shape(dot.node):
                    gradient = self._match(dot, node, slope, wanted)
                    if gradient is not None:
                        later[slope][wanted].append(gradient)
        for slope, by_wanted in sorted(later.items()):
            found = [gradient for each in by_wanted.values() for gradient in each]
            is_sure = len(by_wanted) == 2 or all(map(self._is_certain, found))
            if is_sure and dot.node in self._find_ancestors(slope):
                yield from found

    def _find_ancestors(self, node: int) -> set[int]:
        found: set[int] = set()
        waiting = [node]
        while waiting:
            read = set(self._producers.at(waiting.pop()).tolist()) - found
            found |= read
            waiting += read
        return found


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Products, sums and transpositions of a few tensors that are mostly square."""
    program, summed = Builder(), [(2, 1, 0)]
    nodes = [(program.add("parameter", (4, 4)), (4, 4)) for _ in range(2)]
    nodes.append((program.add("dot", (4, 4), 0, 1), (4, 4)))
    shape = draw(st.sampled_from([(4, 4), (4, 8), (8, 4)]))
    nodes.append((program.add("parameter", shape), shape))
    for kind in draw(st.lists(st.sampled_from(["dot"] * 4 + ["add", "transpose"]), max_size=14)):
        (left, a), (right, b) = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        if kind == "dot":
            fitting = [(i, j) for i in (0, 1) for j in (0, 1) if a[i] == b[j]]
            if not fitting:
                continue
            i, j = draw(st.sampled_from(fitting))
            shape = (a[1 - i], b[1 - j])
            nodes.append((program.add("dot", shape, left, right), shape))
            summed.append((nodes[-1][0], i, j))
        elif kind == "transpose":
            nodes.append((program.transpose(left, (1, 0)), a[::-1]))
        elif a == b:
            nodes.append((program.add("add", a, left, right), a))
    graph = program.build()
    if not draw(st.booleans()):
        return graph
    told = np.full((graph.num_nodes, 2, vocabulary.SUMMED), -1, np.int8)
    for node, i, j in summed:
        told[node, :, 0] = (i, j)
    return dataclasses.replace(graph, summed=told)


@settings(max_examples=120, deadline=None)
@given(programs())
def test_gradients_are_those_that_comparing_all_pairs_finds(graph: Graph) -> None:
    found = _guess(graph)
    dots = np.flatnonzero(found.kernel >= 0)
    dots = dots[graph.node_opcodes[dots] == OPCODE_IDS["dot"]]
    guess = {node: (int(found.input[node]), int(found.kernel[node])) for node in dots.tolist()}
    label = partial(_label, graph, tensor_ranks(graph))
    slow = Pairs(graph, tensor_ranks(graph), guess, label)
    expected: dict[int, Dot] = {}
    for node, pair in guess.items():
        letters = label(node, *pair) if node not in expected else None
        for gradient in slow.list_gradients(Dot(node, *pair, letters)) if letters else ():
            expected.setdefault(gradient.node, gradient)
    assert find_gradients(graph, tensor_ranks(graph), guess, label) == expected


def unroll(steps: int) -> Graph:
    """A recurrent net: each step multiplies the state with the same weights."""
    program = Builder()
    weights, state = program.add("parameter", (16, 16)), program.add("parameter", (8, 16))
    for _ in range(steps):
        state = program.add("tanh", (8, 16), program.add("dot", (8, 16), state, weights))
    return program.build()


def consult(experts: int) -> Graph:
    """Products of one input, and their sum."""
    program = Builder()
    x = program.add("parameter", (16, 16))
    total = program.add("parameter", (16, 16))
    for _ in range(experts):
        product = program.add("dot", (16, 16), x, program.add("parameter", (16, 16)))
        total = program.add("add", (16, 16), total, product)
    return program.build()


@pytest.mark.parametrize("make", [unroll, consult])
def test_thousands_of_dots_at_one_tensor_take_seconds(make: Callable[[int], Graph]) -> None:
    """Compared in pairs they took 36 seconds for 1,200 experts, and hours for these."""
    graph = make(3000)
    begin = time.process_time()
    find_operands(graph)
    assert time.process_time() - begin < 5
