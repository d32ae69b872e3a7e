"""Assign the layouts of one configuration with XLA's worklist algorithm (compiled).

A constraint fixes the layout of an instruction's result (a buffer) or the layout in which an
instruction reads one of its operands (a use). New and changed constraints wait in a worklist,
urgent ones first. A constraint on a use is propagated to the buffer that the use reads, and to the
reading instruction's result and other operands; a constraint on a buffer, to the operands of its
instruction and to its readers. A mandatory constraint replaces an earlier one, an optional one does
not. Buffers without a constraint become row-major at the end, which is propagated as well.

Source: LayoutAssignment of openxla/xla (xla/service/layout_assignment.cc): SetBufferLayout,
SetOperandLayout, PropagateOperandConstraint, PropagateBufferConstraint, PropagateConstraints,
AssignLayoutsToUnconstrainedBuffers. All constraints of a round have equal priority, and these
backends do not negotiate layouts, so a second optional constraint on a tensor is always rejected.
"""

from typing import NamedTuple

import numpy as np

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
    ALIKE,
    UNSET,
    aligned,
    compare_tiled,
    compiled,
    count_ones,
    filtered,
    row_major,
    transposed,
    untransposed,
    with_ones_outermost,
)

# Flags of a constraint. MANDATORY: it replaces an earlier one. URGENT: it is propagated first.
# They are numbers of numpy, as numba compiles a function anew for each constant of Python.
NO_FLAG, MANDATORY, URGENT = np.array([0, 1, 2])
# Indices into State.ends, whose comment says what each entry counts.
STACK, QUEUE_END, QUEUE_BEGIN, ADDED, STEPS = range(5)
NONE = -1
# maximum number of propagation steps, divided by the number of instructions and uses; without this
# limit, constraints might replace each other forever
MAX_STEPS = 64


class State(NamedTuple):
    """The layouts that constraints fix in one configuration, and the constraints that are still to
    be propagated. Constraint number i is on the result of instruction i; constraint number
    instructions + u is on use u."""

    buffers: np.ndarray  # (instructions,) int64, layouts of results; UNSET without a constraint
    uses: np.ndarray  # (uses,) int64, layouts in which operands are read; UNSET if unconstrained
    source: np.ndarray  # (uses,) int64, the instruction whose result each use reads
    marks: np.ndarray  # (instructions + uses,) int8, flags MANDATORY, URGENT of each constraint
    waiting: np.ndarray  # (2, capacity) int64, a stack of urgent constraints and a queue of others
    added: np.ndarray  # (capacity,) int64, new constraints that are not yet in `waiting`
    # (5,) int64, indexed by STACK ... STEPS: how full the stack, the queue and `added` are, and the
    # number of propagation steps so far
    ends: np.ndarray
    # Three fields for a TPU only. Layouts that reshapes, reductions and clusters request in later
    # passes (solution.features.propagation.passes): `kept_buffers` of results (instructions,),
    # `kept_uses` of operands (uses,). `squeezed` (instructions,) bool: True where the compiler
    # drops dimensions of size 1 (solution.features.propagation.squeezing); on a CPU, nowhere.
    kept_buffers: np.ndarray
    kept_uses: np.ndarray
    squeezed: np.ndarray


@compiled
def set_buffer(program, state, op, layout, mandatory, urgent):
    """Constrain the layout of the result of `op` and add the constraint to the worklist, unless the
    rank is below 2, or the constraint is optional and contradicts an earlier one."""
    if program.rank[op] < 2:
        return
    if state.squeezed[op]:
        layout = with_ones_outermost(layout, program.sizes[op], program.rank[op])
    mark, known = mandatory | urgent, state.buffers[op]
    if known == layout:
        changed = state.marks[op] | mark
        if changed != state.marks[op]:
            state.marks[op] = changed
            _add(state, op)
    elif known == UNSET or mandatory:
        state.buffers[op], state.marks[op] = layout, mark
        _add(state, op)


@compiled
def set_use(program, state, use, layout, mandatory, urgent):
    """Constrain the layout in which a use reads its operand and add the constraint to the worklist,
    unless the rank is below 2, or the constraint is optional and the use already has one."""
    base = program.read[use]
    if program.rank[base] < 2:
        return
    if state.squeezed[program.reader[use]]:
        layout = with_ones_outermost(layout, program.sizes[base], program.rank[base])
    if state.uses[use] == UNSET or (mandatory and state.uses[use] != layout):
        state.uses[use] = layout
        state.marks[state.buffers.size + use] = mandatory | urgent
        _add(state, state.buffers.size + use)


@compiled
def _add(state, item):
    if state.ends[ADDED] < state.added.size:
        state.added[state.ends[ADDED]] = item
        state.ends[ADDED] += 1


@compiled
def assign(program, given, state):
    """Write the layout of every result and use into `state`, as a CPU's compiler assigns them.
    `given` (instructions,) is the layout that each custom call requests, or UNSET."""
    reset(state)
    find_sources(program, given, state.source)
    _request_fixed(program, state)
    _request_row_major(program, given, state)
    request_configuration(program, given, state)
    propagate_all(program, state)
    fill_unconstrained(program, given, state)


@compiled
def reset(state):
    """Remove all constraints."""
    state.buffers[:], state.uses[:], state.marks[:], state.ends[:] = UNSET, UNSET, 0, 0


@compiled
def fill_unconstrained(program, given, state):
    """Make every result without a constraint row-major, and propagate these layouts."""
    for op in program.order:
        takes_part = program.kind[op] != ASKS or given[op] != UNSET
        if takes_part and program.rank[op] > 1 and state.buffers[op] == UNSET:
            set_buffer(program, state, op, row_major(program.rank[op]), NO_FLAG, URGENT)
            propagate_all(program, state)


@compiled
def find_sources(program, given, source):
    """Write into `source` (uses,) the instruction that each use reads: a custom call between
    producer and reader if it requests a layout, else the producer."""
    for use in range(source.size):
        base, reader = program.read[use], program.reader[use]
        source[use] = base
        behind, before = program.behind[base], program.before[use]
        if behind != NONE and given[behind] != UNSET and behind != reader:
            source[use] = behind
        if before != NONE and given[before] != UNSET:
            source[use] = before


@compiled
def _request_fixed(program, state):
    """Constrain parameters to their layouts in the module, and results to row-major."""
    last = program.kind.size - 1
    for op in range(last):
        if program.fixed[op] != UNSET and program.use_starts[op] == program.use_starts[op + 1]:
            set_buffer(program, state, op, program.fixed[op], MANDATORY, URGENT)
    _request_row_major_operands(program, state, last)


@compiled
def _request_row_major_operands(program, state, op):
    """Constrain every operand of an instruction to be row-major."""
    for use in range(program.use_starts[op], program.use_starts[op + 1]):
        rank = program.rank[program.read[use]]
        set_use(program, state, use, row_major(rank), MANDATORY, URGENT)


@compiled
def _request_row_major(program, given, state):
    """Constrain operands to row-major, and results to `program.fixed`. If a dot's operands are
    swapped, constrain its result, and the transpose's use of it, to `program.turned`."""
    for op in program.order:
        kind = program.kind[op]
        if kind == GIVES or (kind == ASKS and given[op] == UNSET):
            continue
        if program.fixed[op] != UNSET:
            turned = _is_turned(program, given, op)
            layout = program.turned[op] if turned else program.fixed[op]
            set_buffer(program, state, op, layout, MANDATORY, URGENT)
        first = program.use_starts[op]
        if kind == TRANSPOSES and _is_turned(program, given, program.read[first]):
            layout = program.turned[program.read[first]]
            set_use(program, state, first, layout, MANDATORY, URGENT)
        else:
            _request_row_major_operands(program, state, op)


@compiled
def _is_turned(program, given, op):
    """Return True if the compiler swaps a dot's operands, so that the dot writes its result
    transposed: only a transpose reads the result, and no custom call requests its layout."""
    behind = program.behind[op]
    return program.turned[op] != UNSET and (behind == NONE or given[behind] == UNSET)


@compiled
def request_configuration(program, given, state):
    """Add the configuration's layouts as mandatory constraints on custom calls, beginning with the
    program's first one."""
    for op in program.order:
        if program.kind[op] == ASKS and given[op] != UNSET:
            set_buffer(program, state, op, given[op], MANDATORY, URGENT)
            set_use(program, state, program.use_starts[op], given[op], MANDATORY, URGENT)


@compiled
def propagate_all(program, state):
    """Propagate pending constraints until none is left: the urgent stack, then the queue."""
    ends, waiting = state.ends, state.waiting
    capacity, limit = waiting.shape[1], MAX_STEPS * state.marks.size
    _enqueue(state)
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
            _propagate_buffer(program, state, item)
        else:
            _propagate_use(program, state, item - state.buffers.size)
        _enqueue(state)


@compiled
def _enqueue(state):
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


@compiled
def _propagate_use(program, state, use):
    """Propagate the layout of a use to the buffer that it reads. Then propagate it through the
    reader, whose kind decides: to other operands and the result, to the result only, or not.
    Reductions and broadcasts that only drop or add dimensions of size 1 do it as reshapes do."""
    op, base, layout = program.reader[use], program.read[use], state.uses[use]
    rank, kind = program.rank[base], program.kind[op]
    is_border = kind == ASKS and state.squeezed[base] and _is_border(program, state, use)
    if not is_border and not reads_twin(program, state, use):
        set_buffer(program, state, state.source[use], layout, NO_FLAG, URGENT)
    if state.squeezed[op] and kind in (REDUCES, BROADCASTS):
        kind = RESHAPES
    if kind in (KEEPS, ASKS, REDUCES, CONCATENATES):
        if kind != CONCATENATES or _is_largest(program, use):
            _propagate_to_others(program, state, use)
    elif kind == RESHAPES:
        made = aligned(layout, program.sizes[base], rank, program.sizes[op], program.rank[op])
        if made != UNSET and not _are_vectors(program, base, op):
            urgent = URGENT if only_ones_differ(program, base, op) else NO_FLAG
            set_buffer(program, state, op, made, NO_FLAG, urgent)
    elif kind == TRANSPOSES:
        made = transposed(layout, program.dimensions[op], rank)
        set_buffer(program, state, op, made, MANDATORY, URGENT)


@compiled
def _is_border(program, state, use):
    """Return True if a custom call reads a squeezed tensor in a layout that no reshape in front of
    the call could give it without moving data."""
    base, layout = program.read[use], state.uses[use]
    sizes, rank = program.sizes[base], program.rank[base]
    squeezed = with_ones_outermost(layout, sizes, rank)
    return compare_tiled(squeezed, layout, sizes, rank) != ALIKE


@compiled
def reads_twin(program, state, use):
    """Return True if a squeezed instruction reads a constant or a broadcast scalar that others read
    as well: the compiler makes a second one without dimensions of size 1, so layouts do not pass
    here."""
    base = program.read[use]
    if not state.squeezed[program.reader[use]] or state.squeezed[base]:
        return False
    return count_ones(program.sizes[base], program.rank[base]) > 0


@compiled
def _propagate_to_others(program, state, use):
    """Propagate the layout of a use through the instruction that reads: to its other operands and
    its result, if they have the rank of the operand that is read."""
    op, layout, rank = program.reader[use], state.uses[use], program.rank[program.read[use]]
    for other in range(program.use_starts[op], program.use_starts[op + 1]):
        same = state.source[other] == state.source[use]
        if not same and program.rank[program.read[other]] == rank:
            set_use(program, state, other, layout, MANDATORY, URGENT)
    if program.rank[op] == rank:
        set_buffer(program, state, op, layout, MANDATORY, URGENT)


@compiled
def _is_largest(program, use):
    """Return True if no operand of the concatenation is longer than the operand of `use` along the
    concatenated dimension."""
    op = program.reader[use]
    along = program.dimensions[op, 0]
    if along < 0:
        return True
    for other in range(program.use_starts[op], program.use_starts[op + 1]):
        if program.sizes[program.read[other], along] > program.sizes[program.read[use], along]:
            return False
    return True


@compiled
def _are_vectors(program, one, other):
    """Return True if the results of both instructions have a single dimension of a size other than
    1. Then a reshape between them propagates no layout."""
    return _count_dimensions(program, one) == 1 and _count_dimensions(program, other) == 1


@compiled
def _count_dimensions(program, op):
    count = 0
    for dimension in range(program.rank[op]):
        count += program.sizes[op, dimension] != 1
    return count


@compiled
def only_ones_differ(program, one, other):
    """Return True if the shapes of two instructions differ in dimensions of size 1 only."""
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


@compiled
def _propagate_buffer(program, state, op):
    """Propagate a result's layout to its instruction's operands, then (optional) to its readers."""
    layout, kind, rank = state.buffers[op], program.kind[op], program.rank[op]
    if state.squeezed[op] and kind in (REDUCES, BROADCASTS):
        kind = RESHAPES
    for use in range(program.use_starts[op], program.use_starts[op + 1]):
        base = program.read[use]
        read_rank = program.rank[base]
        if read_rank < 2:
            continue
        if kind in (KEEPS, CONCATENATES, ASKS):
            if read_rank == rank:
                set_use(program, state, use, layout, MANDATORY, URGENT)
        elif kind == BROADCASTS:
            read = filtered(layout, program.dimensions[op], read_rank, rank)
            set_use(program, state, use, read, MANDATORY, NO_FLAG)
        elif kind == RESHAPES:
            read = aligned(layout, program.sizes[op], rank, program.sizes[base], read_rank)
            if read != UNSET and not _are_vectors(program, base, op):
                urgent = URGENT if only_ones_differ(program, base, op) else NO_FLAG
                set_use(program, state, use, read, NO_FLAG, urgent)
        elif kind == TRANSPOSES:
            read = untransposed(layout, program.dimensions[op], rank)
            set_use(program, state, use, read, NO_FLAG, URGENT)
    _propagate_to_readers(program, state, op)


@compiled
def _propagate_to_readers(program, state, op):
    if program.flags[0]:
        return  # every operand has a constraint already, see _request_row_major
    base = program.read[program.use_starts[op]] if program.kind[op] == ASKS else op
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        use = program.reading[k]
        reader = program.reader[use]
        if state.source[use] != op or program.kind[reader] == GIVES:
            continue
        if not reads_twin(program, state, use):
            set_use(program, state, use, state.buffers[op], NO_FLAG, URGENT)
