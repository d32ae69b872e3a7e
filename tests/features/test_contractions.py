"""What dots sum and which operands they read, also where one is a gradient of another."""

import dataclasses
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.contractions import (
    FEATURES,
    contraction_rows,
    contractions,
    mark_contractions,
)
from solution.features.einsum import Einsum, count_terms, label_dot
from solution.features.gradients import Dot, Dots, find_gradients
from solution.features.operations import _guess, _label, find_operands, tensor_ranks
from solution.features.preparation import Preparation, keep_neighbourhood, merge_rest
from solution.programs.hlo.nodes import read_nodes
from tests.made import modules
from tests.made.builder import Builder, Shape
from tests.made.graphs import make_layout_graph


def test_a_dot_says_it_where_a_convolution_does() -> None:
    graph = Preparation(None)(make_layout_graph(5))  # dot of x and w: (rows, inner), (inner, ...)
    assert contractions(graph)[2, :, 0].tolist() == [1, 0]
    marked = mark_contractions(graph)
    assert marked.node_features[2, vocabulary.CONVOLUTION_INPUT_FEATURE] == 1
    assert marked.node_features[2, vocabulary.CONVOLUTION_KERNEL_INPUT] == 0
    changed = (marked.node_features != graph.node_features).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [2]
    assert (contractions(graph)[[0, 1, 3, 4, 5, 6, 7]] == -1).all()
    again = Preparation(None, contractions=True)(marked)
    np.testing.assert_array_equal(again.node_features, marked.node_features)


def test_tables_say_whether_what_is_summed_is_contiguous() -> None:
    """x (rows, inner) is summed along 1, w along 0; both are row-major where nothing is said."""
    graph = Preparation(None)(make_layout_graph(5))
    tensor = graph.layouts.expand()[:, 0]  # of the dot
    rows = contraction_rows(graph)[graph.distinct.inverse]
    assert [feature.name for feature in FEATURES] == [
        "input_sums_minor", "input_sums_outer", "kernel_sums_minor", "kernel_sums_outer",
    ]  # fmt: skip
    for row, slots in zip(rows, tensor, strict=True):
        read = slots[6] if slots[6] >= 0 else 1
        weights = slots[12] if slots[12] >= 0 else 1
        assert row.tolist() == [read == 1, read != 1, weights == 0, weights != 0]


def test_a_module_says_it_itself() -> None:
    """x . x of 16 by 16, both summed along 0: shapes would say 1 and 0."""
    graph = read_graph_of(modules.dot([0], [0], [], []))
    assert contractions(graph)[1, :, 0].tolist() == [0, 0]
    assert contractions(dataclasses.replace(graph, summed=None))[1, :, 0].tolist() == [1, 0]
    marked = mark_contractions(graph)
    assert marked.node_features[1, vocabulary.CONVOLUTION_INPUT_FEATURE] == 0
    assert contractions(graph)[0].max() == -1
    for prune in (keep_neighbourhood, merge_rest):
        kept = prune(graph, 1)
        (dot,) = np.flatnonzero(kept.node_opcodes == OPCODE_IDS["dot"])
        assert contractions(kept)[dot, :, 0].tolist() == [0, 0]
        assert len(kept.summed) == kept.num_nodes


def read_graph_of(numbers: object) -> Graph:
    """x (16, 16) -> dot(x, x) -> exp -> exp -> exp."""
    square = modules.shape(16, 16)
    nodes = [
        modules.node(1, "parameter", square),
        modules.node(2, "dot", square, (1, 1), dot=numbers),
        *(modules.node(k, "exponential", square, (k - 1,)) for k in (3, 4, 5)),
    ]
    found = read_nodes(modules.module(("main", 5, nodes)))
    return Graph(
        name="square",
        collection=collection("layout:xla:random"),
        node_features=found.features,
        node_opcodes=found.opcodes,
        edges=found.edges,
        configurable=np.array([1]),
        configs=encode(np.full((1, 1, 18), -1, np.int8)),
        runtimes=None,
        summed=found.summed,
    )


def test_numbers_that_are_no_dimensions_are_left_out() -> None:
    graph = read_graph_of(modules.dot([7, -3, 1], [10**12, 0], [], []))
    assert contractions(graph)[1].tolist() == [[1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]


@pytest.mark.parametrize(
    ("left", "right", "output", "expected"),
    [
        ((3, 4), (4, 5), (3, 5), ((1,), (0,))),
        ((4, 3), (4, 5), (3, 5), ((0,), (0,))),
        ((3, 4), (5, 4), (3, 5), ((1,), (1,))),
        ((2, 3, 4), (2, 4, 5), (2, 3, 5), ((2,), (1,))),  # a batch of 2
        ((2, 3, 4, 6), (4, 6, 5), (2, 3, 5), ((2, 3), (0, 1))),
        ((7, 7), (7, 7), (7, 7), ((1,), (0,))),  # all fit: as it is written mostly
        ((3,), (5,), (3, 5), ((), ())),
        ((3, 4), (5, 6), (3, 6), None),
    ],
)
def test_dimensions_that_the_output_does_not_have_are_summed(
    left: Shape, right: Shape, output: Shape, expected: object
) -> None:
    found = label_dot(left, right, output)
    assert (found and found.summed) == expected


def test_what_is_made_alike_is_summed_alike() -> None:
    """Queries (batch, rows, 8) and keys (batch, rows, 8), of as many rows as each has numbers."""
    shape = (2, 8, 8)
    assert label_dot(shape, shape, shape) == Einsum((0, 1, 3), (0, 3, 2), (0, 1, 2))
    assert label_dot(shape, shape, shape, is_alike=True) == Einsum((0, 1, 3), (0, 2, 3), (0, 1, 2))


def test_what_a_module_says_is_believed() -> None:
    found = label_dot((7, 7), (7, 7), (7, 7), summed=((0,), (1,)))
    assert found is not None
    assert found.summed == ((0,), (1,))
    assert label_dot((3, 4), (4, 5), (3, 5), summed=((0,), (0,))) is None


def search_terms(left: list[int], right: list[int], output: list[int]) -> int | None:
    """The same by trying every way to divide the output."""
    for batch in range(len(output) + 1):
        for first_right in range(batch, len(output) + 1):
            of_left = Counter(output[:first_right])
            of_right = Counter(output[:batch] + output[first_right:])
            fits = of_left <= Counter(left) and of_right <= Counter(right)
            summed = Counter(left) - of_left
            if fits and summed == Counter(right) - of_right:
                return math.prod(summed.elements())
    return None


SIZES = st.lists(st.integers(2, 4), max_size=5)


@settings(max_examples=200, deadline=None)
@given(SIZES, SIZES, SIZES)
def test_terms_are_those_of_a_search(left: list[int], right: list[int], output: list[int]) -> None:
    found = count_terms(tuple(left), tuple(right), tuple(output))
    assert found == search_terms(left, right, output)


def make_product(opcode: str, first: Shape, second: Shape, output: Shape, *reads: int) -> Graph:
    """Two tensors, and what reads them in this order."""
    program = Builder()
    for shape in (first, second):
        program.add("parameter", shape)
    node = program.add(opcode, output, *reads)
    return program.build({node: np.full((1, 18), -1, np.int8)})


@pytest.mark.parametrize("reads", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [((3, 4), (4, 5), 0), ((4, 5), (3, 4), 1), ((2, 3, 4), (4, 5), 0), ((4, 5), (2, 3, 4), 1)],
)
def test_a_dot_reads_the_tensor_with_its_first_dimension_on_the_left(
    reads: tuple[int, int], first: Shape, second: Shape, left: int
) -> None:
    output = (*(first if left == 0 else second)[:-1], 5)
    operands = find_operands(make_product("dot", first, second, output, *reads))
    assert operands.input.tolist() == [-1, -1, left]
    assert operands.kernel.tolist() == [-1, -1, 1 - left]


@pytest.mark.parametrize("kernel_first", [True, False])
def test_a_convolution_knows_its_kernel_by_window_and_features(kernel_first: bool) -> None:
    source, kernel, output = (8, 12, 12, 16), (3, 3, 16, 32), (8, 12, 12, 32)
    shapes = (kernel, source) if kernel_first else (source, kernel)
    graph = make_product("convolution", *shapes, output, 0, 1)
    features = graph.node_features.copy()
    features[2, 37:39] = 3  # window
    features[2, 93:107] = [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    operands = find_operands(dataclasses.replace(graph, node_features=features))
    assert operands.kernel[2] == (0 if kernel_first else 1)
    assert operands.input[2] == (1 if kernel_first else 0)


def count_impossible_orders(folder: Path) -> int:
    """Operands whose configurations order more dimensions than the operand has."""
    found = 0
    for file in find_files(folder):
        if file.collection.kind == "tile":
            continue
        graph = read_graph(file.path, file.collection)
        operands, configs = find_operands(graph), graph.layouts.expand()
        for first, nodes in ((6, operands.input), (12, operands.kernel)):
            operand = nodes[graph.configurable]
            ranks = np.where(operand >= 0, tensor_ranks(graph)[operand], 0)
            highest = configs[:, :, first : first + 6].max(axis=(0, 2))
            found += int((highest >= np.maximum(ranks, 0)).sum())
    return found


@pytest.mark.parametrize("name", ["sample", "tpu"])
def test_operands_have_the_ordered_dimensions(name: str, request: pytest.FixtureRequest) -> None:
    assert count_impossible_orders(request.getfixturevalue(name)) == 0


Step = dict[int, tuple[int, int, int, int]]


def take_step() -> tuple[Graph, Step]:
    """y = x w, and its gradients as jax has them; of these the operands and what each sums."""
    program, square = Builder(), (8, 8)
    x, w = program.add("parameter", square), program.add("parameter", square)
    y = program.add("dot", square, x, w)
    slope = program.add("multiply", square, y, program.add("tanh", (1,), y))
    of_x = program.add("dot", square, slope, w)
    of_w = program.add("dot", square, slope, x)
    program.transpose(of_w, (1, 0))
    return program.build(), {of_x: (slope, w, 1, 1), of_w: (slope, x, 0, 0)}


def assert_operands(graph: Graph, expected: Step) -> None:
    operands = find_operands(graph)
    for node, (first, second, *_) in expected.items():
        assert {operands.input[node], operands.kernel[node]} == {first, second}


def test_a_transposition_of_dimensions_that_are_not_there_says_nothing() -> None:
    graph, expected = take_step()
    features = graph.node_features.copy()
    features[graph.node_opcodes == OPCODE_IDS["transpose"], vocabulary.DIMENSIONS] = 5
    assert_operands(dataclasses.replace(graph, node_features=features), expected)


def test_transpositions_that_read_themselves_end_as_well() -> None:
    """Edges need not be those of a program; a file may hold any."""
    graph, expected = take_step()
    nodes = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"])
    opcodes = graph.node_opcodes.copy()
    opcodes[nodes] = OPCODE_IDS["transpose"]
    features = graph.node_features.copy()
    features[nodes, vocabulary.DIMENSIONS.start] = 1
    edges = np.vstack([graph.edges, np.column_stack([nodes, nodes])])
    changed = dataclasses.replace(graph, node_opcodes=opcodes, node_features=features, edges=edges)
    assert_operands(changed, expected)


def test_what_a_module_says_of_a_gradient_is_believed() -> None:
    graph, expected = take_step()
    summed = np.full((graph.num_nodes, 2, vocabulary.SUMMED), -1, np.int8)
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["dot"]):
        summed[node, :, 0] = (1, 0)
    for node, (_, _, *dimensions) in expected.items():
        summed[node, :, 0] = dimensions
    found = find_operands(dataclasses.replace(graph, summed=summed))
    for node, (first, second, *_) in expected.items():
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
