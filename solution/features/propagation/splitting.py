"""Find the reductions that XLA's CPU backend computes in two steps, not by its library in one.

XLA splits a reduction of more than 32 elements along a dimension, unless the library computes it.
It reduces windows of 32 elements, then the results of the windows (TreeReductionRewriter, for the
accuracy of sums). XLA decides this before it assigns layouts. Until then a tensor has its layout in
the module: the one that a custom call requests; after a transpose, the operand's layout transposed;
after an element-wise instruction, the layout of the first operand; otherwise row-major, also for
arguments of a call. The library computes reductions of row-major tensors only. So requesting a
layout may split a later reduction, such as that of a softmax, and requesting row-major may prevent
the split.

If the windows do not fill the dimension, the tensor is padded, which takes several times as long.

Source: programs compiled by jaxlib 0.10.2 (tests/collecting/test_library.py).
"""

import numpy as np
from numba import njit

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.layout.conflicts import KEEPING
from solution.features.operands import NONE
from solution.features.propagation.instructions import KEEPS, TRANSPOSES, Instructions
from solution.features.propagation.orders import UNSET, row_major, transposed
from solution.features.propagation.propagation import Numbered
from solution.features.propagation.states import MADE

WINDOW = 32  # elements along a dimension in one window
FULL = 0.25  # relative cost of two steps if the windows fill the dimension; 1 if not
# Instructions that propagate their operand's layout in layout assignment, but not at this stage.
NOT_YET = """
all-reduce all-to-all collective-permute dynamic-slice dynamic-update-slice fft pad reduce-window
scatter select-and-scatter slice sort triangular-solve
"""
KEEPING_ALREADY = [OPCODE_IDS[name] for name in KEEPING.split() if name not in NOT_YET.split()]
REDUCE, FILLED = OPCODE_IDS["reduce"], [OPCODE_IDS[name] for name in ("broadcast", "constant")]


def weigh_windows(ops: Instructions) -> np.ndarray:
    """Return the cost (instructions,) of splitting each: 1 or FULL for a long reduction, else 0."""
    weights = np.zeros(ops.count)
    for op in np.flatnonzero((ops.opcodes == REDUCE) & ops.is_programs & (ops.main[:, 0] >= 0)):
        read = ops.read[ops.main[op, 0]]
        listed = ops.dimensions[op, : ops.rank[read] - ops.rank[op]]
        summed = ops.sizes[read, listed[listed >= 0]]
        long = summed[summed > WINDOW]
        if len(long):
            weights[op] = 1 if (long % WINDOW).any() else FULL
    return weights


def mark_split(ops: Instructions, numbered: Numbered, long: np.ndarray) -> np.ndarray:
    """Return which reductions are split: (configs, instructions) bool.

    Args:
        long: (instructions,) bool, the reductions that are long enough.
    """
    split = np.zeros((len(numbered.numbers), ops.count), bool)
    if long.any():
        propagates = (ops.kind == KEEPS) & np.isin(ops.opcodes, KEEPING_ALREADY) & ops.is_programs
        propagates |= ops.kind == TRANSPOSES
        # The use that each long reduction reads, or whose layout each instruction propagates.
        first = np.where(long, ops.main[:, 0], np.where(propagates, _find_first(ops), NONE))
        position = np.argsort(ops.order)  # a called computation precedes its caller
        behind = np.where(position[ops.read] < position[ops.reader], ops.behind[ops.read], NONE)
        _mark(
            ops.kind, ops.rank, ops.dimensions, ops.read, ops.before, behind,
            ops.order, first, long, numbered.layouts[:, MADE], numbered.numbers, split,
        )  # fmt: skip
    return split


def _find_first(ops: Instructions) -> np.ndarray:
    """Return the use whose layout each instruction takes (instructions,); NONE if no rank fits.

    Edges do not say which operand is the first one. A broadcast or a constant rarely is.
    """
    first = np.full(ops.count, NONE)
    rank = ops.rank[ops.read]
    is_filled = np.isin(ops.opcodes[ops.read], FILLED)
    order = np.lexsort((ops.node[ops.read], is_filled))[::-1]
    fits = order[rank[order] == ops.rank[ops.reader[order]]]
    first[ops.reader[fits]] = fits  # the last assignment wins
    return first


@njit(cache=True, nogil=True)
def _mark(
    kind, rank, dimensions, read, before, behind, order, first, long, made, numbers, split
):  # fmt: skip
    """Mark in `split` (configs, instructions) the long reductions of tensors not row-major.

    In each configuration, visit the instructions in order, and propagate the layout of each from
    the use `first` to its result.

    Args:
        behind: (uses,) the custom call on the operand; NONE for an argument of a call.
        first: (instructions,) the use whose layout is propagated or reduced; NONE for others.
        made: (states,) the layouts that custom calls request, UNSET if they request none.
        numbers: (configs, points) state numbers of the instructions, then of the uses.
    """
    plain = np.array([row_major(one) for one in rank])
    for row in range(len(numbers)):
        layouts = plain.copy()
        for op in order:
            use = first[op]
            if use == NONE:
                continue
            layout = layouts[read[use]]
            for call in (behind[use], before[use]):
                if call != NONE and made[numbers[row, call]] != UNSET:
                    layout = made[numbers[row, call]]
            if long[op]:
                split[row, op] = layout != plain[read[use]]
            elif kind[op] == TRANSPOSES:
                layouts[op] = transposed(layout, dimensions[op], rank[op])
            else:
                layouts[op] = layout
