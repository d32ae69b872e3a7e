"""The instructions that a compiler makes of a program: products, custom calls and loops."""

import dataclasses
from math import prod
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution import read_graph
from solution.collecting.tpu import asking
from solution.domain import vocabulary
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operations import find_operands
from solution.features.preparation import repair_padding
from solution.features.propagation import calls
from solution.features.propagation.backend import CPU, TPU
from solution.features.propagation.canonical import find_matrices, find_orders
from solution.features.propagation.inlining import ITERATIONS, count_runs
from solution.features.propagation.instructions import ASKS, list_instructions
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import BYTES, state_tables
from tests.features.propagation.slow import unpack
from tests.made.builder import Builder

ESTIMATED = Path(__file__).parents[3] / "solution/data/estimated/npz/layout/xla"
PRIMES = [2, 3, 5, 7, 11, 13]


@settings(max_examples=80, deadline=None)
@given(
    st.permutations(PRIMES),
    st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(1, 1), st.integers(1, 2)),
    st.randoms(use_true_random=False),
)
def test_matrices_of_transposed_operands_give_the_same_product(
    sizes: list[int], counts: tuple[int, int, int, int], random: Random
) -> None:
    """A dot whose operands have their dimensions in any order, against einsum."""
    ends = np.cumsum(counts).tolist()
    batch, left, right, summed = (
        list(range(end - count, end)) for end, count in zip(ends, counts, strict=True)
    )
    letters = [mix(own, [*batch, *summed], random) for own in (left, right)]
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=[sizes[letter] for letter in own]) for own in letters]
    expected = np.einsum(arrays[0], letters[0], arrays[1], letters[1], [*batch, *left, *right])
    program = Builder()
    x, w = (program.add("parameter", array.shape) for array in arrays)
    node = program.add("dot", expected.shape, x, w)
    graph = repair_padding(program.build())
    assert find_operands(graph).input[node] == x
    orders = {operand: order for operand, _, order in find_orders(graph)[node]}
    wanted = ((left, summed), (summed, right))
    matrices = [
        make_matrices(array, own, orders.get(operand), batch, *wanted[operand])
        for operand, (array, own) in enumerate(zip(arrays, letters, strict=True))
    ]
    made = np.matmul(*matrices)
    shape = find_matrices(graph).get(node, expected.shape)
    assert prod(shape) == made.size
    np.testing.assert_allclose(made.reshape(expected.shape), expected)
    assert (len(left) > 1) == (node in find_matrices(graph))


def mix(own: list[int], others: list[int], random: Random) -> list[int]:
    """In any order, but for the operand's own, whose order is that of the output."""
    mixed, left = random.sample([*own, *others], len(own) + len(others)), iter(own)
    return [next(left) if letter in own else letter for letter in mixed]


def make_matrices(
    array: np.ndarray, letters: list[int], order: tuple[int, ...] | None, batch: list[int],
    rows: list[int], columns: list[int],
) -> np.ndarray:  # fmt: skip
    """(batch, rows, columns), as a product reads them: rows may stand behind columns."""
    order = tuple(range(len(letters))) if order is None else order
    placed, array = [letters[place] for place in order], array.transpose(order)
    assert placed[: len(batch)] == batch
    head = array.shape[: len(batch)]
    if set(placed[len(batch) :][: len(rows)]) == set(rows):
        return array.reshape(*head, prod(array.shape[len(batch) :][: len(rows)]), -1)
    assert len(rows) == len(columns) == 1  # only matrices are turned by what multiplies them
    return array.swapaxes(-1, -2)


def test_a_convolution_reads_features_last() -> None:
    """Images with features before rows, kernels with those of the output first."""
    program = Builder()
    x = program.add("parameter", (2, 3, 8, 8))
    w = program.add("parameter", (5, 3, 4, 4))
    program.add("dot", (3, 2), program.add("parameter", (3, 4)), program.add("parameter", (4, 2)))
    node = program.add("convolution", (2, 5, 8, 8), x, w)
    graph = program.build()
    features = graph.node_features.copy()
    features[node, 37:39] = 4  # the window
    features[node, 93:107] = [0, 1, 2, 3, 0, 0, 1, 0, 2, 3, 0, 0, 0, 1]
    found = find_orders(repair_padding(dataclasses.replace(graph, node_features=features)))
    assert found[node] == [(0, x, (0, 2, 3, 1)), (1, w, (2, 3, 1, 0))]


@pytest.mark.parametrize("opcode", ["tanh", "constant", "reshape"])
def test_what_is_equal_is_there_once(opcode: str) -> None:
    """But for constants, whose values nobody knows, and for what a configuration may change."""
    program = Builder()
    x, w = program.add("parameter", (3, 5)), program.add("parameter", (5, 7))
    program.add("dot", (3, 7), x, w)
    equal = [program.add(opcode, (3, 5), *([] if opcode == "constant" else [x])) for _ in range(2)]
    for node in equal:
        program.add("negate", (3, 5), node)
    graph = repair_padding(program.build())
    if opcode == "reshape":
        graph = dataclasses.replace(graph, configurable=np.array(equal[:1]))
    opcodes = list_instructions(graph, CPU).opcodes
    assert (opcodes == OPCODE_IDS[opcode]).sum() == (1 if opcode == "tanh" else 2)


def test_opcodes_are_those_of_the_writer() -> None:
    moved = {"slice", "concatenate", "pad", "reverse", "transpose"}
    assert frozenset(calls.ELEMENTWISE.split()) == asking.PROPAGATES - asking.WINDOWS - moved
    assert calls.WINDOWS == asking.WINDOWS
    assert calls.WRITES_FIXED == asking.WRITES_FIXED
    assert calls.PROPAGATES == asking.PROPAGATES


def test_a_requested_layout_reaches_the_next_dot() -> None:
    """It passes through tanh and a transpose; an operand's layout is not requested."""
    program = Builder()
    left, right = program.add("parameter", (8, 16)), program.add("parameter", (16, 24))
    dot = program.add("dot", (8, 24), left, right)
    tanh = program.add("tanh", (8, 24), dot)
    transpose = program.add("transpose", (24, 8), tanh, listed=[1, 0])
    last = program.add("dot", (24, 32), transpose, program.add("parameter", (8, 32)))
    layouts = np.full((2, 1, 18), -1, np.int8)
    layouts[0, 0, :2] = 0, 1  # the result's layout
    layouts[1, 0, 6:8] = 0, 1  # an operand's layout, which has no effect
    graph = program.build(dict(zip((dot, last), layouts, strict=True)), last)
    propagation = Propagation(repair_padding(graph), TPU)
    ops = propagation.instructions
    asked = {int(ops.node[ops.read[ops.use_starts[k]]]) for k in np.flatnonzero(ops.kind == ASKS)}
    assert asked == {dot, transpose}
    results = propagation.number().results[0]
    made = {int(n): int(results[k]) for k, n in enumerate(ops.node) if ops.kind[k] != ASKS}
    assert [unpack(made[node], 2) for node in (dot, tanh, transpose)] == [(0, 1), (0, 1), (1, 0)]


def test_a_scan_runs_once_for_each_slice() -> None:
    """jax lowers a scan to a loop that calls the step, and the step takes the slice. Each program
    scans sequences of one length. Its loops share computations, which do not run more often for
    that."""
    files = sorted(ESTIMATED.glob("*/train/small-recurrent_*.npz"))
    assert len(files) == 16
    for file in files:
        runs = set(count_runs(read_graph(file)).tolist()) - {1}
        assert len(runs) == 1 and runs < {12, 16, 24, 32}, file


def test_what_a_loop_reads_counts_once_for_each_iteration() -> None:
    """A loop over twelve rows with a loop of unknown length in it: a dot in each, and one outside.
    Each configuration requests one dot's result by columns, which changes its padding."""
    program, roots, dots = Builder(), [], []

    def multiply(*reads: int) -> int:
        """Add a dot of a new tensor, and a second one, whose result is the body's."""
        left = program.add("parameter", (64, 64), *reads)
        dots.append(program.add("dot", (64, 24), left, program.add("parameter", (64, 24))))
        return program.add("dot", (64, 64), dots[-1], program.add("parameter", (24, 64)))

    roots.append(multiply())
    inner = program.add("while", (64, 64), program.add("parameter", (64, 64)), roots[0])
    rows = program.add("parameter", (12, 64, 64))
    piece = program.add("dynamic-slice", (1, 64, 64), rows, program.add("parameter", ()))
    second = program.add("add", (64, 64), multiply(), program.add("reshape", (64, 64), piece))
    roots.append(program.add("add", (64, 64), second, inner))
    outer = program.add("while", (64, 64), program.add("parameter", (64, 64)), roots[1])
    roots.append(program.add("add", (64, 64), outer, multiply()))
    layouts = np.full((3, 4, 18), -1, np.int8)
    for number in range(3):
        layouts[number, 1 + number, :2] = 0, 1
    graph = program.build(dict(zip(dots, layouts, strict=True)))
    features = graph.node_features.copy()
    features[roots, vocabulary.IS_ROOT] = 1
    graph = repair_padding(dataclasses.replace(graph, node_features=features))
    runs = count_runs(graph)
    assert runs[dots].tolist() == [12 * ITERATIONS, 12, 1]
    assert runs[[outer, inner]].tolist() == [1, 12]
    table = state_tables("tpu")(graph)
    moved = table.shares[:, BYTES][table.numbers].sum(axis=1)[graph.layouts.rows]
    changes = moved[1:] - moved[0]
    assert changes[2] != 0
    np.testing.assert_allclose(changes / changes[2], runs[dots], rtol=1e-4)
