"""The custom calls of a TPU's configuration are those that are written into the module."""

import numpy as np

from solution.collecting.tpu import asking
from solution.features.preparation import repair_padding
from solution.features.propagation import calls
from solution.features.propagation.backend import TPU
from solution.features.propagation.instructions import ASKS
from solution.features.propagation.propagation import Propagation
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
