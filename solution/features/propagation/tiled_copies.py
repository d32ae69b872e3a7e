"""Find the copies that a TPU's compiler inserts between assigned layouts (compiled).

After the last pass of layout assignment (solution.features.propagation.passes), copies around
reshapes that only add or drop dimensions of size 1 become one, or none if the layout is the same
before and behind them. Copies on both sides of a transpose, or of a reshape that moves no data,
become one. A dot or convolution writes the layout that its readers read, if only the two minor
dimensions are swapped. Then the custom calls are removed, and the remaining copies are marked.
"""

from numba import njit

from solution.domain.vocabulary import LANES, OPCODE_IDS, SUBLANES
from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    GIVES,
    KEEPS,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
)
from solution.features.propagation.orders import (
    ALIKE,
    SCATTERED,
    SWAPPED,
    UNSET,
    aligned,
    compare,
    compare_tiled,
    compiled,
    transposed,
    unpack,
    untransposed,
)
from solution.features.propagation.worklist import NONE, only_ones_differ

DOT, CONVOLUTION = OPCODE_IDS["dot"], OPCODE_IDS["convolution"]
BROADCAST = OPCODE_IDS["broadcast"]


@njit(cache=True, nogil=True)
def finish(program, state):
    """Merge and remove copies after the last pass, and remove the custom calls."""
    _collapse_copies(program, state)
    _merge_copies(program, state)
    _fuse_copies(program, state)
    state.source[:] = program.read  # no use reads through a custom call any more


@compiled
def _collapse_copies(program, state):
    """Collapse the copies between reshapes that only add or drop dimensions of size 1: such a
    reshape reads its operand as it was written, and only the last one of several makes a copy, into
    the layout that all readers of its result want. A broadcast into the shape of its operand does
    nothing: its result has its operand's layout."""
    for op in program.order:
        if not _is_trivial(program, state, op):
            continue
        use = program.use_starts[op]
        base = program.read[use]
        rank, made_rank = program.rank[base], program.rank[op]
        read = state.buffers[base] if rank > 1 else 0
        if rank > 1:
            state.uses[use] = read
        if program.kind[op] == KEEPS:
            state.buffers[op] = read
        elif made_rank > 1 and read != UNSET:
            reader = _find_only_reader(program, op)
            if reader != NONE and _is_trivial(program, state, reader):
                sizes, made_sizes = program.sizes[base], program.sizes[op]
                state.buffers[op] = aligned(read, sizes, rank, made_sizes, made_rank)
            else:
                wanted = _find_read(program, state, op)
                state.buffers[op] = wanted if wanted != UNSET else state.buffers[op]


@compiled
def _is_trivial(program, state, op):
    """Return True for reshapes that only add or drop dimensions of size 1, and broadcasts into the
    shape of their operand, whose neighbours keep their dimensions."""
    use, kind = program.use_starts[op], program.kind[op]
    if program.use_starts[op + 1] != use + 1 or state.squeezed[op]:
        return False
    if kind == KEEPS:
        return program.opcodes[op] == BROADCAST
    return kind == RESHAPES and only_ones_differ(program, program.read[use], op)


@compiled
def _find_only_reader(program, op):
    """Return the only reader of a result, not counting custom calls; NONE if there are several."""
    found = NONE
    for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
        reader = program.reader[program.reading[k]]
        if program.kind[reader] != ASKS:
            if found != NONE:
                return NONE
            found = reader
    return found


@compiled
def _merge_copies(program, state):
    """Merge the two copies before and behind a transpose, or a reshape that moves no data, into one
    copy before it. All readers of the result, not counting custom calls, must read one layout. If
    the only reader is a transpose, the second copy may also stand behind that transpose."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        use, kind, rank = program.use_starts[op], program.kind[op], program.rank[op]
        if kind != RESHAPES and kind != TRANSPOSES:
            continue
        if program.use_starts[op + 1] != use + 1:
            continue
        base, made, read = program.read[use], state.buffers[op], state.uses[use]
        if _is_trivial(program, state, op):
            continue
        if rank < 2 or state.kept_buffers[op] != UNSET:
            continue
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
        if kind == RESHAPES and not is_bitcast(program, state, op, use):
            state.uses[use], state.buffers[op] = read, made
        elif behind != NONE:
            state.uses[program.use_starts[behind]] = wanted
            state.buffers[behind] = behind_wanted


@compiled
def _find_transpose(program, op):
    """Return the transpose that is the only reader of a result, not counting custom calls; NONE if
    there is no such transpose."""
    reader = _find_only_reader(program, op)
    return reader if reader != NONE and program.kind[reader] == TRANSPOSES else NONE


@compiled
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


@compiled
def _fuse_copies(program, state):
    """Remove copies behind dots, convolutions and reshapes that move data: let these instructions
    write the layout of the copy.

    All readers of the result, not counting custom calls, must read that layout.
    """
    for op in range(program.kind.size):
        is_moving = program.kind[op] == RESHAPES and state.kept_buffers[op] != UNSET
        if not is_moving and not is_product(program, op):
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


@compiled
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
    return kind != RESHAPES or program.rank[op] == 2 or is_bitcast(program, state, reader, use)


@compiled
def mark_tiled_copies(program, free, state, marks):
    """Write into `marks` the kind of copy of each use, then of each reshape and transpose.

    Args:
        free: (instructions,) bool: True for tensors that change layout at no cost, as constants do.
        state: the layouts after finish().
        marks: (uses + instructions,) int8, output: ALIKE ... SCATTERED.
    """
    marks[:] = ALIKE
    for use in range(state.uses.size):
        if not free[program.read[use]]:
            kind = _compare_use(program, state, use)
            if kind != ALIKE and not _is_copied_before(program, state, marks, use):
                marks[use] = kind
    for op in range(program.kind.size):
        if program.kind[op] == RESHAPES or program.kind[op] == TRANSPOSES:
            marks[state.uses.size + op] = _compare_sides(program, state, op)


@compiled
def _compare_use(program, state, use):
    """Return the kind of copy that stands before a use; ALIKE if there is no copy.

    A dot or convolution needs no copy to read the two minor dimensions swapped. For a broadcast,
    the positions of dimensions of size 1 do not matter.
    """
    base, reader = program.read[use], program.reader[use]
    made, read, kind = state.buffers[base], state.uses[use], program.kind[reader]
    if made == UNSET or read == UNSET or kind == ASKS:
        return ALIKE
    if kind == BROADCASTS:
        return compare(made, read, program.sizes[base], program.rank[base])
    copy = compare_tiled(made, read, program.sizes[base], program.rank[base])
    return ALIKE if copy == SWAPPED and is_product(program, reader) else copy


@compiled
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


@compiled
def _compare_sides(program, state, op):
    """Return the kind of copy that a reshape or transpose makes; ALIKE if it moves no data."""
    use = program.use_starts[op]
    if program.use_starts[op + 1] != use + 1 or program.rank[op] < 2 or state.squeezed[op]:
        return ALIKE
    base, made, rank = program.read[use], state.buffers[op], program.rank[op]
    read, read_rank = state.uses[use], program.rank[base]
    if read == UNSET:
        read = state.buffers[base] if read_rank > 1 else 0
    if made == UNSET or read == UNSET:
        return ALIKE
    if program.kind[op] == TRANSPOSES:
        moved = transposed(read, program.dimensions[op], rank)
        return compare_tiled(moved, made, program.sizes[op], rank)
    if read_rank < 2:  # a vector and a minor dimension both fill lanes: compare their sizes
        is_moved = program.sizes[op, unpack(made, 0)] != program.sizes[base, 0]
    else:
        is_moved = not is_bitcast(program, state, op, use)
    if not is_moved:
        return ALIKE
    moved = aligned(read, program.sizes[base], read_rank, program.sizes[op], rank)
    kind = compare_tiled(moved, made, program.sizes[op], rank) if moved != UNSET else ALIKE
    return kind if kind != ALIKE else SCATTERED


@compiled
def is_bitcast(program, state, op, use):
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


@compiled
def _fills_tiles(rows):
    return rows % SUBLANES == 0 or rows == 2 or rows == 4


@compiled
def is_product(program, op):
    """Return True for dots and convolutions, False for their custom calls."""
    opcode = program.opcodes[op]
    return program.kind[op] != ASKS and opcode in (DOT, CONVOLUTION)
