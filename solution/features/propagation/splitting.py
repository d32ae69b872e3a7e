"""Find the reductions that XLA's CPU backend computes in two steps, not by its library in one.

A reduction of more than 32 elements along a dimension becomes a reduction of windows of 32, and one
of their results, unless the library computes it (TreeReductionRewriter, for the accuracy of sums).
XLA decides this before it assigns layouts. At that point a tensor has its layout in the module:
what a custom call requests; after a transpose, the transposed layout of the operand; after an
element-wise instruction, the layout of the first operand; otherwise row-major, also for arguments
of a call. The library is asked for row-major tensors only. A request may therefore split the
reduction of a softmax behind it, and a request for a row-major tensor may prevent the split.

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
# Of the instructions that propagate their operand's layout, the others count as row-major here.
UNLIKE = """
all-reduce all-to-all collective-permute dynamic-slice dynamic-update-slice fft pad reduce-window
scatter select-and-scatter slice sort triangular-solve
"""
ALIKE = [OPCODE_IDS[name] for name in KEEPING.split() if name not in UNLIKE.split()]
REDUCE, FILLED = OPCODE_IDS["reduce"], [OPCODE_IDS[name] for name in ("broadcast", "constant")]


def weigh_windows(own: Instructions) -> np.ndarray:
    """Return the cost of splitting each (instructions,): 1 or FULL for a long reduction, else 0."""
    weights = np.zeros(own.count)
    for place in np.flatnonzero((own.opcodes == REDUCE) & own.is_programs & (own.main[:, 0] >= 0)):
        read = own.read[own.main[place, 0]]
        listed = own.dimensions[place, : own.rank[read] - own.rank[place]]
        summed = own.sizes[read, listed[listed >= 0]]
        long = summed[summed > WINDOW]
        if len(long):
            weights[place] = 1 if (long % WINDOW).any() else FULL
    return weights


def mark_split(own: Instructions, numbered: Numbered, long: np.ndarray) -> np.ndarray:
    """Return which of the reductions `long` are split: (configs, instructions) bool."""
    split = np.zeros((len(numbered.numbers), own.count), bool)
    if long.any():
        hands_on = (own.kind == KEEPS) & np.isin(own.opcodes, ALIKE) & own.is_programs
        hands_on |= own.kind == TRANSPOSES
        first = np.where(long, own.main[:, 0], np.where(hands_on, _find_first(own), NONE))
        place = np.argsort(own.order)  # a called computation precedes its caller
        behind = np.where(place[own.read] < place[own.reader], own.behind[own.read], NONE)
        _mark(
            own.kind, own.rank, own.dimensions, own.read, own.before, behind,
            own.order, first, long, numbered.layouts[:, MADE], numbered.numbers, split,
        )  # fmt: skip
    return split


def _find_first(own: Instructions) -> np.ndarray:
    """Return the use whose layout each instruction takes (instructions,); NONE if no rank fits.

    Edges do not say which operand comes first. An operand that is a broadcast is mostly not first.
    """
    first = np.full(own.count, NONE)
    rank = own.rank[own.read]
    is_filled = np.isin(own.opcodes[own.read], FILLED)
    order = np.lexsort((own.node[own.read], is_filled))[::-1]
    fits = order[rank[order] == own.rank[own.reader[order]]]
    first[own.reader[fits]] = fits  # the last assignment wins
    return first


@njit(cache=True, nogil=True)
def _mark(
    kind, rank, dimensions, read, before, behind, order, first, long, made, numbers, split
):  # fmt: skip
    """Mark the reductions (configs, instructions) that read a tensor that is not row-major.

    Args:
        behind: (uses,) the custom call on the operand; NONE for an argument of a call.
        first: (instructions,) the use whose layout each propagates or reduces; NONE for others.
        made: (states,) the layouts that custom calls request, UNSET if they pass.
        numbers: (configs, places) state numbers of the instructions, then of the uses.
    """
    plain = np.array([row_major(one) for one in rank])
    for row in range(len(numbers)):
        layouts = plain.copy()
        for own in order:
            use = first[own]
            if use == NONE:
                continue
            found = layouts[read[use]]
            for call in (behind[use], before[use]):
                if call != NONE and made[numbers[row, call]] != UNSET:
                    found = made[numbers[row, call]]
            if long[own]:
                split[row, own] = found != plain[read[use]]
            elif kind[own] == TRANSPOSES:
                layouts[own] = transposed(found, dimensions[own], rank[own])
            else:
                layouts[own] = found
