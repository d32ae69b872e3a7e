"""Which reductions XLA's CPU backend takes in two steps, and so not by its library in one.

A reduction of more than 32 elements along a dimension becomes one of windows of 32, and then one of
what these leave, unless the library takes it (TreeReductionRewriter; the order of sums is better
so). That is decided before layouts are assigned. Until then a tensor has the layout that the
program is read with: what a custom call asks for, what a transposition makes of that of its
operand, element by element that of the first operand; else it is row-major, as are arguments of a
call. Of a tensor that has another one the library is not asked. So behind a request a softmax may
be taken in two steps, whatever it reads in the end; and a request for a row-major tensor may save
it from that.

Where the windows do not fill a dimension the tensor is padded, which takes several times as long.

Source: what jaxlib 0.10.2 compiles (tests/collecting/test_library.py).
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

WINDOW = 32  # elements along a dimension that are taken at once
FULL = 0.25  # what a reduction in two steps costs whose windows fill the dimension; 1 of others
# Of what hands its operand's layout on once layouts are assigned, the others are read as row-major.
UNLIKE = """
all-reduce all-to-all collective-permute dynamic-slice dynamic-update-slice fft pad reduce-window
scatter select-and-scatter slice sort triangular-solve
"""
ALIKE = [OPCODE_IDS[name] for name in KEEPING.split() if name not in UNLIKE.split()]
REDUCE, FILLED = OPCODE_IDS["reduce"], [OPCODE_IDS[name] for name in ("broadcast", "constant")]


def weigh_windows(own: Instructions) -> np.ndarray:
    """What splitting each costs (instructions,): 1 or FULL of a long reduction, 0 of all others."""
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
    """Which of the reductions `long` (instructions,) are split: (configs, instructions) bool."""
    split = np.zeros((len(numbered.numbers), own.count), bool)
    if long.any():
        hands_on = (own.kind == KEEPS) & np.isin(own.opcodes, ALIKE) & own.is_programs
        hands_on |= own.kind == TRANSPOSES
        first = np.where(long, own.main[:, 0], np.where(hands_on, _find_first(own), NONE))
        place = np.argsort(own.order)  # what is called is read before who calls it
        behind = np.where(place[own.read] < place[own.reader], own.behind[own.read], NONE)
        _mark(
            own.kind, own.rank, own.dimensions, own.read, own.before, behind,
            own.order, first, long, numbered.layouts[:, MADE], numbered.numbers, split,
        )  # fmt: skip
    return split


def _find_first(own: Instructions) -> np.ndarray:
    """The use (instructions,) whose layout each has; NONE where there is none of its rank.

    Edges do not say which operand is the first. What is filled with one value mostly is not.
    """
    first = np.full(own.count, NONE)
    rank = own.rank[own.read]
    is_filled = np.isin(own.opcodes[own.read], FILLED)
    order = np.lexsort((own.node[own.read], is_filled))[::-1]
    fits = order[rank[order] == own.rank[own.reader[order]]]
    first[own.reader[fits]] = fits  # the last one that is written stays
    return first


@njit(cache=True, nogil=True)
def _mark(
    kind, rank, dimensions, read, before, behind, order, first, long, made, numbers, split
):  # fmt: skip
    """Mark the reductions (configs, instructions) that read what is not row-major.

    Args:
        behind: (uses,) the custom call behind what is read; NONE of an argument of a call.
        first: (instructions,) the use whose layout each hands on, or reduces; NONE of others.
        made: (states,) the layouts that custom calls ask for, UNSET where they are passed over.
        numbers: (configs, places) the states of the instructions, then of the uses.
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
