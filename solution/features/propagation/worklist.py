"""Assign the layouts of one configuration with XLA's worklist algorithm (compiled).

A constraint is on the result of an instruction (a buffer) or on one of its operands (a use). New
and changed constraints wait in a worklist, urgent ones first. Each is propagated to its neighbours:
from a use to the buffer that it reads and to the instruction's other operands; from a buffer to the
operands of its instruction and to its readers. A mandatory constraint replaces an earlier one, an
optional one does not. Buffers without a constraint become row-major at the end, which is propagated
as well.

Source: LayoutAssignment of openxla/xla (xla/service/layout_assignment.cc): SetBufferLayout,
SetOperandLayout, PropagateOperandConstraint, PropagateBufferConstraint, PropagateConstraints,
AssignLayoutsToUnconstrainedBuffers. All priorities in a round are equal, and these backends do not
negotiate, so the second optional constraint on a tensor is always rejected.

Hold the layout constraints of one configuration, and add constraints (compiled).

Source: LayoutAssignment::SetBufferLayout and SetOperandLayout of openxla/xla.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    CONCATENATES,
    GIVES,
    KEEPS,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
)
from solution.features.propagation.orders import (
    UNSET,
    aligned,
    filtered,
    row_major,
    transposed,
    untransposed,
)

MANDATORY, URGENT = 1, 2  # flags of a constraint on a buffer or a use
STACK, QUEUE_END, QUEUE_BEGIN, ADDED, STEPS = range(5)  # indices into State.ends
NONE = -1
# Steps for each instruction and use, after which propagation stops: constraints may replace each
# other forever.
MAX_STEPS = 64


class Program(NamedTuple):
    """The arrays of Instructions for compiled code, and the readers of each instance."""

    kind: np.ndarray
    rank: np.ndarray
    sizes: np.ndarray
    dimensions: np.ndarray
    fixed: np.ndarray
    turned: np.ndarray
    use_starts: np.ndarray
    read: np.ndarray
    reader: np.ndarray
    before: np.ndarray
    behind: np.ndarray
    order: np.ndarray
    # (instructions + 1,), the start of each instance's readers in `reading`
    reader_starts: np.ndarray
    reading: np.ndarray  # (uses,), uses sorted by the instance they read
    flags: np.ndarray  # (3,) bool, the fields of Backend


class State(NamedTuple):
    """The constraints on one configuration so far."""

    buffers: np.ndarray  # (instructions,) int64, layouts of results
    uses: np.ndarray  # (uses,) int64, layouts in which operands are read
    source: np.ndarray  # (uses,) int64, the buffer that is read
    marks: np.ndarray  # (instructions + uses,) int8
    waiting: np.ndarray  # (2, capacity) int64, a stack of urgent constraints and a queue of others
    added: np.ndarray  # (capacity,) int64, new constraints that are in neither yet
    ends: np.ndarray  # (5,) int64


@njit(cache=True, nogil=True)
def set_buffer(program, state, own, layout, mandatory, urgent):
    """Constrain the layout of the result of `own`; ignored below rank 2."""
    if program.rank[own] < 2:
        return
    mark, known = mandatory | urgent, state.buffers[own]
    if known == layout:
        changed = state.marks[own] | mark
        if changed != state.marks[own]:
            state.marks[own] = changed
            _add(state, own)
    elif known == UNSET or mandatory:
        state.buffers[own], state.marks[own] = layout, mark
        _add(state, own)


@njit(cache=True, nogil=True)
def set_use(program, state, use, layout, mandatory, urgent):
    """Constrain the layout in which a use reads its operand."""
    if program.rank[program.read[use]] < 2:
        return
    if state.uses[use] == UNSET or (mandatory and state.uses[use] != layout):
        state.uses[use] = layout
        state.marks[state.buffers.size + use] = mandatory | urgent
        _add(state, state.buffers.size + use)


@njit(cache=True, nogil=True)
def _add(state, item):
    if state.ends[ADDED] < state.added.size:
        state.added[state.ends[ADDED]] = item
        state.ends[ADDED] += 1


@njit(cache=True, nogil=True)
def assign(program, given, state):
    """Assign layouts; each custom call requests its layout in `given` (instructions,), or UNSET."""
    state.buffers[:], state.uses[:], state.marks[:], state.ends[:] = UNSET, UNSET, 0, 0
    _find_sources(program, given, state.source)
    _ask_for_fixed(program, state)
    _ask_of_backend(program, given, state)
    _ask_of_configuration(program, given, state)
    _hand_on_all(program, state)
    for own in program.order:
        is_there = program.kind[own] != ASKS or (given[own] != UNSET and program.flags[2])
        if is_there and program.rank[own] > 1 and state.buffers[own] == UNSET:
            set_buffer(program, state, own, row_major(program.rank[own]), 0, URGENT)
            _hand_on_all(program, state)


@njit(cache=True, nogil=True)
def _find_sources(program, given, source):
    """Write the buffer that each use reads: the custom call's, if one stands between."""
    for use in range(source.size):
        base, reader = program.read[use], program.reader[use]
        source[use] = base
        if program.flags[2]:
            behind, before = program.behind[base], program.before[use]
            if behind != NONE and given[behind] != UNSET and behind != reader:
                source[use] = behind
            if before != NONE and given[before] != UNSET:
                source[use] = before


@njit(cache=True, nogil=True)
def _ask_for_fixed(program, state):
    """Add the constraints of parameters and of the program's results."""
    last = program.kind.size - 1
    for own in range(last):
        if program.fixed[own] != UNSET and program.use_starts[own] == program.use_starts[own + 1]:
            set_buffer(program, state, own, program.fixed[own], MANDATORY, URGENT)
    _read_rows(program, state, last)


@njit(cache=True, nogil=True)
def _read_rows(program, state, own):
    """Constrain every operand of an instruction to be row-major."""
    for use in range(program.use_starts[own], program.use_starts[own + 1]):
        rank = program.rank[program.read[use]]
        set_use(program, state, use, row_major(rank), MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _ask_of_backend(program, given, state):
    if not program.flags[0]:
        return
    for own in program.order:
        kind = program.kind[own]
        if kind == GIVES or (kind == ASKS and (given[own] == UNSET or not program.flags[2])):
            continue
        if program.fixed[own] != UNSET:
            turned = _is_turned(program, given, own)
            layout = program.turned[own] if turned else program.fixed[own]
            set_buffer(program, state, own, layout, MANDATORY, URGENT)
        first = program.use_starts[own]
        if kind == TRANSPOSES and _is_turned(program, given, program.read[first]):
            layout = program.turned[program.read[first]]
            set_use(program, state, first, layout, MANDATORY, URGENT)
        else:
            _read_rows(program, state, own)


@njit(cache=True, nogil=True)
def _is_turned(program, given, own):
    """Tell if a dot writes its transposed result, because no request fixes its layout."""
    behind = program.behind[own]
    return program.turned[own] != UNSET and (behind == NONE or given[behind] == UNSET)


@njit(cache=True, nogil=True)
def _ask_of_configuration(program, given, state):
    """Add the configuration's requests: on custom calls, or on the instruction and its uses."""
    if program.flags[2]:
        for own in program.order:
            if program.kind[own] == ASKS and given[own] != UNSET:
                set_buffer(program, state, own, given[own], MANDATORY, URGENT)
                set_use(program, state, program.use_starts[own], given[own], MANDATORY, URGENT)
        return
    for own in program.order:
        behind = program.behind[own]
        if behind != NONE and given[behind] != UNSET:
            set_buffer(program, state, own, given[behind], MANDATORY, URGENT)
        for use in range(program.use_starts[own], program.use_starts[own + 1]):
            before = program.before[use]
            if before != NONE and given[before] != UNSET:
                set_use(program, state, use, given[before], MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _hand_on_all(program, state):
    """Propagate pending constraints until none is left: the urgent stack, then the queue."""
    ends, waiting = state.ends, state.waiting
    capacity, limit = waiting.shape[1], MAX_STEPS * state.marks.size
    _sort_in(state)
    while ends[STACK] > 0 or ends[QUEUE_BEGIN] < ends[QUEUE_END]:
        ends[STEPS] += 1
        if ends[STEPS] > limit:
            ends[STACK], ends[QUEUE_BEGIN] = 0, ends[QUEUE_END]
            return
        if ends[STACK] > 0:
            ends[STACK] -= 1
            item = waiting[0, ends[STACK]]
        else:
            item = waiting[1, ends[QUEUE_BEGIN] % capacity]
            ends[QUEUE_BEGIN] += 1
        if item < state.buffers.size:
            _hand_on_buffer(program, state, item)
        else:
            _hand_on_use(program, state, item - state.buffers.size)
        _sort_in(state)


@njit(cache=True, nogil=True)
def _sort_in(state):
    """Push new constraints on the stack if they are urgent, else append them to the queue."""
    ends, waiting = state.ends, state.waiting
    for k in range(ends[ADDED]):
        item = state.added[k]
        if state.marks[item] & URGENT:
            if ends[STACK] < waiting.shape[1]:
                waiting[0, ends[STACK]] = item
                ends[STACK] += 1
        elif ends[QUEUE_END] - ends[QUEUE_BEGIN] < waiting.shape[1]:
            waiting[1, ends[QUEUE_END] % waiting.shape[1]] = item
            ends[QUEUE_END] += 1
    ends[ADDED] = 0


@njit(cache=True, nogil=True)
def _hand_on_use(program, state, use):
    """Propagate a use to its buffer, then to the reader's other operands or its result."""
    own, base, layout = program.reader[use], program.read[use], state.uses[use]
    rank, kind = program.rank[base], program.kind[own]
    set_buffer(program, state, state.source[use], layout, 0, URGENT)
    if kind in (KEEPS, ASKS, REDUCES, CONCATENATES):
        if kind != CONCATENATES or _is_largest(program, use):
            _hand_on_to_others(program, state, use)
    elif kind == RESHAPES:
        made = aligned(layout, program.sizes[base], rank, program.sizes[own], program.rank[own])
        if made != UNSET and not _are_vectors(program, base, own):
            urgent = URGENT if only_ones_differ(program, base, own) else 0
            set_buffer(program, state, own, made, 0, urgent)
    elif kind == TRANSPOSES:
        made = transposed(layout, program.dimensions[own], rank)
        set_buffer(program, state, own, made, MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _hand_on_to_others(program, state, use):
    """Give the layout to all other operands, and to the result, of the same rank."""
    own, layout, rank = program.reader[use], state.uses[use], program.rank[program.read[use]]
    for other in range(program.use_starts[own], program.use_starts[own + 1]):
        same = state.source[other] == state.source[use]
        if not same and program.rank[program.read[other]] == rank:
            set_use(program, state, other, layout, MANDATORY, URGENT)
    if program.rank[own] == rank:
        set_buffer(program, state, own, layout, MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _is_largest(program, use):
    """Tell if no other operand of a concatenation is larger along the concatenated dimension."""
    own = program.reader[use]
    along = program.dimensions[own, 0]
    if along < 0:
        return True
    for other in range(program.use_starts[own], program.use_starts[own + 1]):
        if program.sizes[program.read[other], along] > program.sizes[program.read[use], along]:
            return False
    return True


@njit(cache=True, nogil=True)
def _are_vectors(program, one, other):
    """Tell if both have at most one dimension whose size is not 1: then nothing propagates."""
    return _count_dimensions(program, one) == 1 and _count_dimensions(program, other) == 1


@njit(cache=True, nogil=True)
def _count_dimensions(program, own):
    count = 0
    for dimension in range(program.rank[own]):
        count += program.sizes[own, dimension] != 1
    return count


@njit(cache=True, nogil=True)
def only_ones_differ(program, one, other):
    """Tell if the shapes of two instructions differ in dimensions of size 1 only."""
    k = 0
    for j in range(program.rank[one]):
        if program.sizes[one, j] == 1:
            continue
        while k < program.rank[other] and program.sizes[other, k] == 1:
            k += 1
        if k == program.rank[other] or program.sizes[other, k] != program.sizes[one, j]:
            return False
        k += 1
    while k < program.rank[other] and program.sizes[other, k] == 1:
        k += 1
    return k == program.rank[other]


@njit(cache=True, nogil=True)
def _hand_on_buffer(program, state, own):
    """Propagate a buffer to its instruction's operands, then to readers without a constraint."""
    layout, kind, rank = state.buffers[own], program.kind[own], program.rank[own]
    for use in range(program.use_starts[own], program.use_starts[own + 1]):
        base = program.read[use]
        read_rank = program.rank[base]
        if read_rank < 2:
            continue
        if kind in (KEEPS, CONCATENATES, ASKS):
            if read_rank == rank:
                set_use(program, state, use, layout, MANDATORY, URGENT)
        elif kind == BROADCASTS:
            read = filtered(layout, program.dimensions[own], read_rank, rank)
            set_use(program, state, use, read, MANDATORY, 0)
        elif kind == RESHAPES:
            read = aligned(layout, program.sizes[own], rank, program.sizes[base], read_rank)
            if read != UNSET and not _are_vectors(program, base, own):
                urgent = URGENT if only_ones_differ(program, base, own) else 0
                set_use(program, state, use, read, 0, urgent)
        elif kind == TRANSPOSES:
            read = untransposed(layout, program.dimensions[own], rank)
            set_use(program, state, use, read, 0, URGENT)
    _hand_on_to_readers(program, state, own)


@njit(cache=True, nogil=True)
def _hand_on_to_readers(program, state, own):
    if program.flags[0]:
        return  # every reader has a constraint already
    base = program.read[program.use_starts[own]] if program.kind[own] == ASKS else own
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        use = program.reading[k]
        if state.source[use] == own and program.kind[program.reader[use]] != GIVES:
            set_use(program, state, use, state.buffers[own], 0, URGENT)
