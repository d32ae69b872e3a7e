"""Assign the layouts of one configuration as a TPU's compiler does (compiled).

The worklist algorithm (solution.features.propagation.worklist) runs up to MOST_PASSES times:

1. The program's parameters and results have layouts that the TPU chooses by size. A configuration's
   layouts are requested by custom calls, as solution.collecting.tpu.asking writes them: behind
   convolutions, dots and reshapes, before reshapes, and behind some tensors that these layouts
   reach. Dots and convolutions request layouts of little padding, the last one first; layouts of
   their operands are propagated after all others. A dot that only another dot reads, perhaps
   through element-wise instructions and transposes, requests nothing in the first two passes.
   Tensors that no request reaches become row-major.
2. A reshape that moves data, because it is no bitcast under the tiles of 8 x 128, requests a pair
   of layouts with little padding; see solution.features.propagation.tiles.
3. If no reshape needs new layouts, a reduction whose result orders the dimensions differently from
   its operand requests the operand's layout, and the same order in the result.

After the last pass, copies on both sides of a reshape or transpose become one. A dot or convolution
writes the layout that its readers read, if only the two minor dimensions are swapped. Then the
custom calls are removed, and the remaining copies are marked.
"""

from numba import njit

from solution.domain.vocabulary import LANES, OPCODE_IDS, SUBLANES
from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    GIVES,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
)
from solution.features.propagation.orders import (
    ALIKE,
    BITS,
    SCATTERED,
    SWAPPED,
    UNSET,
    aligned,
    compare,
    compare_tiled,
    transposed,
    unpack,
    untransposed,
)
from solution.features.propagation.worklist import (
    MANDATORY,
    NONE,
    URGENT,
    fill_unconstrained,
    find_sources,
    only_ones_differ,
    propagate_all,
    request_configuration,
    reset,
    set_buffer,
    set_use,
)

MOST_PASSES = 5
# first pass, counted from 0, in which dots that only another dot reads request layouts as well
LAST_GROUPED = 2
DOT, CONVOLUTION = OPCODE_IDS["dot"], OPCODE_IDS["convolution"]


@njit(cache=True, nogil=True)
def run_pass(program, given, feeds, state, turn):
    """Run pass number `turn` (from 0): write the layout of every result and use into `state`.

    Args:
        given: (instructions,) the layout that each custom call requests, or UNSET.
        feeds: (instructions,) bool: True for dots that only another dot reads, see feeds_dot().
        state: working memory; kept_buffers and kept_uses have the layouts kept by earlier passes.
    """
    reset(state)
    find_sources(program, given, state.source)
    _request_boundary(program, state)
    _request_kept(program, state, RESHAPES)
    _request_kept(program, state, REDUCES)
    _request_products(program, feeds, state, turn)
    request_configuration(program, given, state)
    propagate_all(program, state)
    fill_unconstrained(program, given, state)


@njit(cache=True, nogil=True)
def finish(program, state):
    """Merge and remove copies after the last pass, and remove the custom calls."""
    _merge_copies(program, state)
    _fuse_copies(program, state)
    state.source[:] = program.read  # no use reads through a custom call any more


@njit(cache=True, nogil=True)
def propagate_requests(program, given, known):
    """Propagate requested layouts of results forward; write them into `given` for the custom calls
    that belong to no configurable node.

    A result takes the layout of its first operand of equal rank that a requested layout reaches.
    See solution.collecting.tpu.asking.propagate.

    Args:
        known: (instructions,) output: the requested layout that reaches each result, or UNSET.
    """
    known[:] = UNSET
    for op in range(program.kind.size):
        call, rank = program.behind[op], program.rank[op]
        if call != NONE and program.asked[call, 0] >= 0:
            known[op] = given[call]
        elif program.forwards[op] and rank > 1:
            for use in range(program.use_starts[op], program.use_starts[op + 1]):
                base = program.read[use]
                if known[op] == UNSET and program.rank[base] == rank:
                    known[op] = known[base]
            if known[op] != UNSET and program.kind[op] == TRANSPOSES:
                known[op] = transposed(known[op], program.dimensions[op], rank)
            if call != NONE:
                given[call] = known[op]


@njit(cache=True, nogil=True)
def _request_boundary(program, state):
    """Constrain parameters and results to the layouts that they have at the program's boundary."""
    last = program.kind.size - 1
    for op in program.order:
        if program.fixed[op] != UNSET and program.use_starts[op] == program.use_starts[op + 1]:
            set_buffer(program, state, op, program.fixed[op], MANDATORY, URGENT)
    for use in range(program.use_starts[last], program.use_starts[last + 1]):
        set_use(program, state, use, program.device[program.read[use]], MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _request_kept(program, state, kind):
    """Constrain the instructions of a kind (RESHAPES or REDUCES) to the layouts that earlier passes
    kept for them (kept_buffers, kept_uses), beginning with the program's last instruction."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        if program.kind[op] == kind and state.kept_buffers[op] != UNSET:
            for use in range(program.use_starts[op], program.use_starts[op + 1]):
                if state.kept_uses[use] != UNSET:
                    is_trivial = only_ones_differ(program, program.read[use], op)
                    urgent = URGENT if kind == RESHAPES and is_trivial else 0
                    set_use(program, state, use, state.kept_uses[use], MANDATORY, urgent)
            set_buffer(program, state, op, state.kept_buffers[op], MANDATORY, URGENT)


@njit(cache=True, nogil=True)
def _request_products(program, feeds, state, turn):
    """Constrain dots and convolutions, beginning with the program's last one. In passes before
    LAST_GROUPED, skip dots that only another dot reads (`feeds`). `turn`: the number of the pass,
    from 0."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        if not _is_product(program, op) or program.fixed[op] == UNSET:
            continue
        if turn < LAST_GROUPED and feeds[op]:
            continue
        set_buffer(program, state, op, program.fixed[op], MANDATORY, URGENT)
        for use in range(program.use_starts[op], program.use_starts[op + 1]):
            if program.wanted[use] != UNSET:
                set_use(program, state, use, program.wanted[use], MANDATORY, 0)


@njit(cache=True, nogil=True)
def _is_product(program, op):
    opcode = program.opcodes[op]
    return program.kind[op] != ASKS and opcode in (DOT, CONVOLUTION)


@njit(cache=True, nogil=True)
def feeds_dot(program, given, op):
    """Return True if `op` is a dot that only another dot reads, perhaps through element-wise
    instructions and transposes."""
    if program.opcodes[op] != DOT:
        return False
    while program.only_reader[op] != NONE:
        call = program.behind[op]
        if call != NONE and given[call] != UNSET:
            return False
        op = program.only_reader[op]
        if program.opcodes[op] == DOT:
            return True
    return False


@njit(cache=True, nogil=True)
def keep_reshapes(program, state):
    """Choose and keep layouts for reshapes that move data, to be requested in the next passes.
    Return True if a reshape without kept layouts got some."""
    found = False
    for op in range(program.kind.size):
        use = program.use_starts[op]
        if program.kind[op] != RESHAPES or program.wanted[use] == UNSET:
            continue
        if state.kept_buffers[op] == UNSET and not _is_bitcast(program, state, op, use):
            state.kept_buffers[op], state.kept_uses[use] = program.fixed[op], program.wanted[use]
            found = True
    return found


@njit(cache=True, nogil=True)
def _is_bitcast(program, state, op, use):
    """Return True if a reshape moves no data although both of its sides are stored in tiles."""
    base, read, made = program.read[use], state.uses[use], state.buffers[op]
    rank, made_rank = program.rank[base], program.rank[op]
    if read == UNSET:
        read = state.buffers[state.source[use]]
    sizes, made_sizes = program.sizes[base], program.sizes[op]
    moved = aligned(read, sizes, rank, made_sizes, made_rank)
    if moved == UNSET or compare(moved, made, made_sizes, made_rank) != ALIKE:
        return False
    minor, made_minor = sizes[unpack(read, 0)], made_sizes[unpack(made, 0)]
    rows, made_rows = sizes[unpack(read, 1)], made_sizes[unpack(made, 1)]
    if minor != made_minor or rows == made_rows:
        return minor == made_minor
    # a tile has as many rows as the second minor dimension (`rows`), rounded up to a power of two
    if minor > LANES:
        return rows % SUBLANES == 0 and made_rows % SUBLANES == 0
    return _fills_tiles(rows) and _fills_tiles(made_rows)


@njit(cache=True, nogil=True)
def _fills_tiles(rows):
    return rows % SUBLANES == 0 or rows == 2 or rows == 4


@njit(cache=True, nogil=True)
def keep_reductions(program, state):
    """Choose and keep layouts for reductions that reorder dimensions, to be requested in the next
    passes. Return True if a reduction without kept layouts got some."""
    found = False
    for op in range(program.kind.size):
        use = program.main[op, 0]
        if program.kind[op] != REDUCES or use == NONE or program.rank[op] < 2:
            continue
        read = state.uses[use]
        if read == UNSET:
            read = state.buffers[state.source[use]]
        made, rank = _reduced(read, program.dimensions[op], program.rank[program.read[use]])
        if rank != program.rank[op]:  # skip: the shapes contradict the summed dimensions
            continue
        is_alike = compare(made, state.buffers[op], program.sizes[op], program.rank[op]) == ALIKE
        if not is_alike and state.kept_buffers[op] == UNSET:
            state.kept_buffers[op], state.kept_uses[use] = made, read
            found = True
    return found


@njit(cache=True, nogil=True)
def _reduced(layout, summed, rank):
    """Return a reduction's layout and rank if its operand has `layout`: the dimensions `summed`
    (6,) are dropped, and the others renumbered."""
    result, filled = 0, 0
    for slot in range(rank):
        axis, before, is_summed = unpack(layout, slot), 0, False
        for other in summed:
            is_summed |= other == axis
            before += 0 <= other < axis
        if not is_summed:
            result |= (axis - before) << (BITS * filled)
            filled += 1
    return result, filled


@njit(cache=True, nogil=True)
def _merge_copies(program, state):
    """Merge the two copies before and behind a transpose, or a reshape that moves no data, into one
    copy before it. All readers of the result, not counting custom calls, must read one layout. If
    the only reader is a transpose, the second copy may also stand behind that transpose."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        use, kind, rank = program.use_starts[op], program.kind[op], program.rank[op]
        if kind != RESHAPES and kind != TRANSPOSES:
            continue
        if program.use_starts[op + 1] != use + 1 or rank < 2 or state.kept_buffers[op] != UNSET:
            continue
        base, made, read = program.read[use], state.buffers[op], state.uses[use]
        if read == UNSET or read == state.buffers[base]:
            continue
        wanted, behind = _find_read(program, state, op), _find_transpose(program, op)
        behind_wanted = _find_read(program, state, behind) if behind != NONE else UNSET
        if behind_wanted != UNSET and wanted in (UNSET, made):
            wanted = untransposed(behind_wanted, program.dimensions[behind], rank)
        else:
            behind = NONE
        if wanted in (UNSET, made):
            continue
        if kind == TRANSPOSES:
            moved = untransposed(wanted, program.dimensions[op], rank)
        else:
            moved = aligned(
                wanted, program.sizes[op], rank, program.sizes[base], program.rank[base]
            )
        if moved == UNSET:
            continue
        state.uses[use], state.buffers[op] = moved, wanted
        if kind == RESHAPES and not _is_bitcast(program, state, op, use):
            state.uses[use], state.buffers[op] = read, made
        elif behind != NONE:
            state.uses[program.use_starts[behind]] = wanted
            state.buffers[behind] = behind_wanted


@njit(cache=True, nogil=True)
def _find_transpose(program, op):
    """Return the transpose that is the only reader of a result, not counting custom calls; NONE if
    there is no such transpose."""
    found = NONE
    for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
        reader = program.reader[program.reading[k]]
        if program.kind[reader] != ASKS:
            if found != NONE or program.kind[reader] != TRANSPOSES:
                return NONE
            found = reader
    return found


@njit(cache=True, nogil=True)
def _find_read(program, state, op):
    """Return the layout in which all readers, not counting custom calls, read a result; UNSET if
    the layouts differ or are not known."""
    found = UNSET
    for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
        use = program.reading[k]
        if program.kind[program.reader[use]] != ASKS:
            read = state.uses[use]
            if read == UNSET or (found != UNSET and read != found):
                return UNSET
            found = read
    return found


@njit(cache=True, nogil=True)
def _fuse_copies(program, state):
    """Remove copies behind dots, convolutions and reshapes that move data: let these instructions
    write the layout of the copy.

    All readers of the result, not counting custom calls, must read that layout.
    """
    for op in range(program.kind.size):
        is_moving = program.kind[op] == RESHAPES and state.kept_buffers[op] != UNSET
        if not is_moving and not _is_product(program, op):
            continue
        read = _find_read(program, state, op)
        if read in (UNSET, state.buffers[op]):
            continue
        is_blocked = False
        for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
            use = program.reading[k]
            kind = program.kind[program.reader[use]]
            if kind == ASKS:
                continue
            is_end = kind == GIVES
            is_blocked |= is_end if is_moving else not _can_write(program, state, op, use)
        if not is_blocked:
            state.buffers[op] = read


@njit(cache=True, nogil=True)
def _can_write(program, state, op, use):
    """Return True if a dot or convolution can write the layout in which `use` reads its result.

    The instruction can swap the two minor dimensions of its result, but not if the compiler fuses
    it with a reduction that reads a convolution, or makes the copy a part of a reshape that moves
    data.
    """
    made, read = state.buffers[op], state.uses[use]
    if compare(made, read, program.sizes[op], program.rank[op]) != SWAPPED:
        return False
    kind = program.kind[program.reader[use]]
    if program.opcodes[op] == CONVOLUTION:
        return kind != REDUCES
    reader = program.reader[use]
    return kind != RESHAPES or program.rank[op] == 2 or _is_bitcast(program, state, reader, use)


@njit(cache=True, nogil=True)
def mark_tiled_copies(program, given, free, state, marks):
    """Write into `marks` the kind of copy of each use, then of each reshape and transpose.

    Args:
        given: (instructions,) the layout that each custom call requests; UNSET if it requests none.
        free: (instructions,) bool: True for tensors that change layout at no cost, as constants do.
        state: the layouts after finish().
        marks: (uses + instructions,) int8, output: ALIKE ... SCATTERED.
    """
    marks[:] = ALIKE
    for use in range(state.uses.size):
        if not free[program.read[use]]:
            kind = _compare_use(program, given, state, use)
            if kind != ALIKE and not _is_copied_before(program, state, marks, use):
                marks[use] = kind
    for op in range(program.kind.size):
        if program.kind[op] == RESHAPES or program.kind[op] == TRANSPOSES:
            marks[state.uses.size + op] = _compare_sides(program, given, state, op)


@njit(cache=True, nogil=True)
def _compare_use(program, given, state, use):
    """Return the kind of copy that stands before a use; ALIKE if there is no copy.

    A reshape that the compiler moves away (_is_moved_away) needs no copy, nor does a dot or
    convolution that reads the two minor dimensions swapped. For a broadcast, the positions of
    dimensions of size 1 do not matter.
    """
    base, reader = program.read[use], program.reader[use]
    made, read, kind = state.buffers[base], state.uses[use], program.kind[reader]
    if made == UNSET or read == UNSET or kind == ASKS or _is_moved_away(program, given, reader):
        return ALIKE
    if kind == BROADCASTS:
        return compare(made, read, program.sizes[base], program.rank[base])
    copy = compare_tiled(made, read, program.sizes[base], program.rank[base])
    return ALIKE if copy == SWAPPED and _is_product(program, reader) else copy


@njit(cache=True, nogil=True)
def _is_copied_before(program, state, marks, use):
    """Return True if an earlier use of the same tensor is copied into the same layout."""
    base = program.read[use]
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        other = program.reading[k]
        if other >= use:
            return False
        if marks[other] != ALIKE and state.uses[other] == state.uses[use]:
            return True
    return False


@njit(cache=True, nogil=True)
def _is_moved_away(program, given, op):
    """Return True if a reshape only adds or drops dimensions of size 1, and no custom call requests
    a layout of its result: the compiler moves it past the element-wise instructions that read it.
    """
    if program.kind[op] != RESHAPES or program.use_starts[op + 1] != program.use_starts[op] + 1:
        return False
    call = program.behind[op]
    is_asked = call != NONE and given[call] != UNSET
    return not is_asked and only_ones_differ(program, program.read[program.use_starts[op]], op)


@njit(cache=True, nogil=True)
def _compare_sides(program, given, state, op):
    """Return the kind of copy that a reshape or transpose makes; ALIKE if it moves no data."""
    use = program.use_starts[op]
    if program.use_starts[op + 1] != use + 1 or program.rank[op] < 2:
        return ALIKE
    base, made, rank = program.read[use], state.buffers[op], program.rank[op]
    read, read_rank = state.uses[use], program.rank[base]
    if read == UNSET:
        read = state.buffers[base] if read_rank > 1 else 0
    if made == UNSET or read == UNSET or _is_moved_away(program, given, op):
        return ALIKE
    if program.kind[op] == TRANSPOSES:
        moved = transposed(read, program.dimensions[op], rank)
        return compare_tiled(moved, made, program.sizes[op], rank)
    if read_rank < 2:  # a vector and a minor dimension both fill lanes: compare their sizes
        is_bitcast = program.sizes[op, unpack(made, 0)] == program.sizes[base, 0]
    else:
        is_bitcast = _is_bitcast(program, state, op, use)
    if is_bitcast:
        return ALIKE
    moved = aligned(read, program.sizes[base], read_rank, program.sizes[op], rank)
    kind = compare_tiled(moved, made, program.sizes[op], rank) if moved != UNSET else ALIKE
    return kind if kind != ALIKE else SCATTERED
