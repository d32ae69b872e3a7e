"""Mark where the layouts of one configuration make the compiler copy a tensor (compiled)."""

import numpy as np
from numba import njit

from solution.features.propagation.instructions import KEEPS, RESHAPES, TRANSPOSES
from solution.features.propagation.orders import (
    ALIKE,
    SCATTERED,
    UNSET,
    aligned,
    compare,
    pack,
    row_major,
    transposed,
)
from solution.features.propagation.worklist import assign


@njit(cache=True, nogil=True)
def run(program, free, asked, packed, starts, codes, state, layouts, copies):
    """Assign the layouts of each configuration and mark the copies.

    Args:
        program: a worklist.Program.
        free: (instructions,) bool; tensors that cost nothing in another layout, such as constants.
        asked: (instructions, 2), the field of Instructions.
        packed, starts, codes: fields of the codebook; its layouts as integers (pairs, 3).
        layouts: (configs, instructions) int64, written.
        copies: (configs, uses + instructions) int8, written: how a tensor is copied before a use
            reads it, or by a reshape or transpose that is no bitcast.
    """
    given = np.full(program.kind.size, UNSET)
    for row in range(len(codes)):
        for own in range(program.kind.size):
            position = asked[own, 0]
            if position >= 0:
                given[own] = packed[starts[position] + codes[row, position], asked[own, 1]]
        assign(program, given, state)
        layouts[row] = state.buffers
        mark_copies(program, free, state, copies[row])


@njit(cache=True, nogil=True)
def mark_copies(program, free, state, marks):
    """Mark how each use is copied before it is read, and which reshapes and transposes copy."""
    marks[:] = ALIKE
    for use in range(state.uses.size):
        base, source = program.read[use], state.source[use]
        wanted, made = state.uses[use], state.buffers[source]
        if wanted == UNSET or made == UNSET or free[base]:
            continue
        kind = compare(made, wanted, program.sizes[base], program.rank[base])
        # An element-wise instruction copies inside its loop, once for each reader.
        again = program.kind[program.reader[use]] == KEEPS
        if kind != ALIKE and (again or not _is_there(program, state, use)):
            marks[use] = kind
    for own in range(program.kind.size):
        if program.kind[own] == RESHAPES or program.kind[own] == TRANSPOSES:
            marks[state.uses.size + own] = _compare_sides(program, state, own)


@njit(cache=True, nogil=True)
def _is_there(program, state, use):
    """Tell if an earlier use of the same tensor is copied into the same layout."""
    base = program.read[use]
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        other = program.reading[k]
        if other >= use:
            return False
        if state.source[other] == state.source[use] and state.uses[other] == state.uses[use]:
            return True
    return False


@njit(cache=True, nogil=True)
def _compare_sides(program, state, own):
    """Return how a reshape or transpose moves memory; ALIKE if it is a bitcast."""
    use = program.use_starts[own]
    if program.use_starts[own + 1] != use + 1 or program.rank[own] < 2:
        return ALIKE
    base, made = program.read[use], state.buffers[own]
    read, rank, read_rank = state.uses[use], program.rank[own], program.rank[base]
    if read == UNSET:
        read = row_major(read_rank) if read_rank < 2 else state.buffers[state.source[use]]
    if made == UNSET or read == UNSET:
        return ALIKE
    if program.kind[own] == TRANSPOSES:
        bitcast = transposed(read, program.dimensions[own], rank)
    else:
        bitcast = aligned(read, program.sizes[base], read_rank, program.sizes[own], rank)
    if bitcast == UNSET:
        return SCATTERED
    return compare(bitcast, made, program.sizes[own], rank)


@njit(cache=True, nogil=True)
def pack_given(rows, ranks, packed):
    """Pack the layouts that configurations request into integers.

    Args:
        rows: (pairs, 3, 6) of a codebook, minor to major. The first -1 ends a layout; the
            remaining dimensions follow, the last one most minor.
        ranks: (pairs, 3) int64, the tensors' ranks.
        packed: (pairs, 3) int64, written; UNSET where nothing is requested or the rank is wrong.
    """
    order = np.zeros(rows.shape[2], np.int64)
    for pair in range(len(rows)):
        for tensor in range(rows.shape[1]):
            packed[pair, tensor] = _pack_one(rows[pair, tensor], ranks[pair, tensor], order)


@njit(cache=True, nogil=True)
def _pack_one(row, rank, order):
    count, seen = 0, 0
    for place in range(row.size):
        if row[place] < 0:
            continue
        if row[place] >= rank or seen >> row[place] & 1:
            return UNSET
        order[count] = row[place]
        seen |= 1 << row[place]
        count += 1
    if row[0] < 0 or count == 0:
        return UNSET
    for dimension in range(rank - 1, -1, -1):
        if not seen >> dimension & 1:
            order[count] = dimension
            count += 1
    return pack(order, rank)
