"""Layout assignment of one configuration, compiled.

Constraints are on what an instruction makes (a buffer) and on what it reads (a use). Those that are
new or have changed wait in a list, urgent ones before others, and each is handed on to its
neighbours: from a use to the buffer that it reads and to the other operands of the instruction,
from a buffer to what its instruction reads. What must hold displaces what was there, a wish does
not. What nobody asked for becomes row-major in the end, and that is handed on as well.

Source: LayoutAssignment of openxla/xla (xla/service/layout_assignment.cc): SetBufferLayout,
SetOperandLayout, PropagateOperandConstraint, PropagateBufferConstraint, PropagateConstraints,
AssignLayoutsToUnconstrainedBuffers. In a round all priorities are equal, and these backends do not
negotiate, so a wish that comes second is always refused.
"""

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
from solution.features.propagation.requests import (
    ADDED,
    MANDATORY,
    QUEUE_BEGIN,
    QUEUE_END,
    STACK,
    STEPS,
    URGENT,
    set_buffer,
    set_use,
)

NONE = -1
# A program whose constraints chase each other ends all the same: after so many steps for each of
# its instructions and uses what is left is not handed on.
MAX_STEPS = 64


@njit(cache=True, nogil=True)
def assign(program, given, state):
    """Assign layouts, where each custom call asks for those `given` (instructions,), or UNSET."""
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
    """The buffer that each use reads: of the custom call in between, where there is one."""
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
    """Parameters have their layouts, and so has what the program gives back."""
    last = program.kind.size - 1
    for own in range(last):
        if program.fixed[own] != UNSET and program.use_starts[own] == program.use_starts[own + 1]:
            set_buffer(program, state, own, program.fixed[own], MANDATORY, URGENT)
    _read_rows(program, state, last)


@njit(cache=True, nogil=True)
def _read_rows(program, state, own):
    """All that an instruction reads must be row-major."""
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
    """Whether a dot writes what a transposition would make of it, as nobody asks for its layout."""
    behind = program.behind[own]
    return program.turned[own] != UNSET and (behind == NONE or given[behind] == UNSET)


@njit(cache=True, nogil=True)
def _ask_of_configuration(program, given, state):
    """By custom calls, or of the instruction's own buffer and uses."""
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
    """Hand on what waits until nothing does: the urgent one that came last, then the others."""
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
    """What was added goes on the stack if it is urgent, else into the queue."""
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
    """To the buffer that is read, then to the reader's other operands or to what it makes."""
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
    """All operands of one rank, and a result of that rank, have one layout."""
    own, layout, rank = program.reader[use], state.uses[use], program.rank[program.read[use]]
    for other in range(program.use_starts[own], program.use_starts[own + 1]):
        same = state.source[other] == state.source[use]
        if not same and program.rank[program.read[other]] == rank:
            set_use(program, state, other, layout, MANDATORY, URGENT)
    if program.rank[own] == rank:
        set_buffer(program, state, own, layout, MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _is_largest(program, use):
    """Whether no other operand of a concatenation is larger along the dimension that grows."""
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
    """Whether both have a single dimension that is not of size 1: then no layout is handed on."""
    return _count_dimensions(program, one) == 1 and _count_dimensions(program, other) == 1


@njit(cache=True, nogil=True)
def _count_dimensions(program, own):
    count = 0
    for dimension in range(program.rank[own]):
        count += program.sizes[own, dimension] != 1
    return count


@njit(cache=True, nogil=True)
def only_ones_differ(program, one, other):
    """Whether the shapes of two instructions are the same but for dimensions of size 1."""
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
    """To what its instruction reads, then to those that read it and were asked for nothing."""
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
        return  # each has been asked for something already
    base = program.read[program.use_starts[own]] if program.kind[own] == ASKS else own
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        use = program.reading[k]
        if state.source[use] == own and program.kind[program.reader[use]] != GIVES:
            set_use(program, state, use, state.buffers[own], 0, URGENT)
