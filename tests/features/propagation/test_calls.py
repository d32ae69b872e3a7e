"""A TPU's configuration: the custom calls are those that are written into the module, and loops
count with their iterations."""

import dataclasses

import numpy as np

from solution.collecting.tpu import asking
from solution.domain import vocabulary
from solution.features.preparation import repair_padding
from solution.features.propagation import calls
from solution.features.propagation.backend import TPU
from solution.features.propagation.inlining import ITERATIONS, count_runs
from solution.features.propagation.instructions import ASKS
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import BYTES, state_tables
from tests.features.propagation.slow import unpack
from tests.made.builder import Builder


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
