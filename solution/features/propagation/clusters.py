"""Move clusters of element-wise instructions to a layout with less padding (compiled).

Once a pass changes nothing else, a TPU's compiler looks at each cluster: element-wise instructions
of one shape that read each other without a copy, and the broadcasts of scalars that they read. It
moves the cluster to the layout of least padded size if its instructions save more bytes by this
than copies at its border would move. Then it requests the new layout of the cluster's first
instruction, and assigns layouts again. The compiler's log (TPU_VMODULE=tpu_layout_assignment=9)
states both numbers, from which the weights below were found.
"""

import numpy as np
from numba import njit

from solution.domain.vocabulary import LANES, OPCODE_IDS, SUBLANES
from solution.features.propagation.calls import IS_ELEMENTWISE
from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    GIVES,
    KEEPS,
    REDUCES,
    RESHAPES,
)
from solution.features.propagation.orders import (
    UNSET,
    compiled,
    count_ones,
    unpack,
    with_ones_outermost,
)
from solution.features.propagation.squeezing import is_filled
from solution.features.propagation.tiled_copies import is_product
from solution.features.propagation.worklist import NONE, only_ones_differ, reads_twin

# Weights of the instructions at a cluster's border, in copies that a move would add. COPIED: a copy
# that a move may remove. HEAVY: dots, convolutions and reshapes. PLAIN: reductions, broadcasts,
# poolings and custom calls that read, and all other tensors that are read. LAST: all other readers.
COPIED, PLAIN, HEAVY, LAST = -1, 1, 2, 5
BROADCAST, REDUCE_WINDOW = OPCODE_IDS["broadcast"], OPCODE_IDS["reduce-window"]
DIVIDE, SQRT = OPCODE_IDS["divide"], OPCODE_IDS["sqrt"]
# (opcodes,) bool: instructions that a cluster consists of
IS_MOVED = IS_ELEMENTWISE.copy()
IS_MOVED[[OPCODE_IDS["select"], OPCODE_IDS["clamp"]]] = False


@njit(cache=True, nogil=True)
def keep_clusters(program, given, state):
    """Choose and keep layouts for clusters that are moved, to be requested in the next passes.
    Return True if a cluster got a layout."""
    found, count = False, program.kind.size
    if not _could_save(program, state):  # nearly always: skip the search for clusters
        return found
    seen, members = np.zeros(count, np.bool_), np.empty(count, np.int64)
    marked = np.full((3, count), NONE)  # of tensors, of readers, and of tensors that are broadcast
    for op in program.order:
        if seen[op] or not _can_begin(program, state, op):
            continue
        size = _collect(program, state, seen, members, op)
        wanted = _find_wanted(program, state, op)
        before = _count_padded(program, op, state.buffers[op])
        after = _count_padded(program, op, wanted)
        if after >= before:
            continue
        counted, border = 0, 0
        for k in range(size):
            counted += _count(program, members[k])
            border += _weigh_operands(program, state, members[k], marked[0], op)
            border += _weigh_readers(program, given, state, members[k], marked[1:], op)
        if counted * (before - after) > border * (before + after):
            state.kept_buffers[op], found = wanted, True
    return found


@compiled
def _could_save(program, state):
    """Return True if any instruction at which a cluster could begin would take less padding."""
    for op in range(program.kind.size):
        if _can_begin(program, state, op):
            wanted = _find_wanted(program, state, op)
            after = _count_padded(program, op, wanted)
            if after < _count_padded(program, op, state.buffers[op]):
                return True
    return False


@compiled
def _can_begin(program, state, op):
    is_begin = _is_counted(program, op) or is_filled(program, op)
    return is_begin and state.buffers[op] != UNSET


@compiled
def _find_wanted(program, state, op):
    """Return the layout of least padded size."""
    wanted = program.device[op]
    if state.squeezed[op]:
        wanted = with_ones_outermost(wanted, program.sizes[op], program.rank[op])
    return wanted


@compiled
def _is_counted(program, op):
    """Return True for element-wise instructions of a rank of at least 2."""
    return program.kind[op] == KEEPS and IS_MOVED[program.opcodes[op]] and program.rank[op] > 1


@compiled
def _count(program, op):
    """Return as how many instructions a member counts. The compiler turns a constant over a square
    root into a product with a reciprocal square root, which is an instruction of its own."""
    if not _is_counted(program, op):
        return 0
    if program.opcodes[op] != DIVIDE:
        return 1
    root, filled = False, False
    for use in range(program.use_starts[op], program.use_starts[op + 1]):
        base = program.read[use]
        root |= program.opcodes[base] == SQRT
        filled |= is_filled(program, base)
    return 1 + (root and filled)


@compiled
def _is_member(program, state, op):
    """Return True for instructions that can be in a cluster: those that count, broadcasts of
    scalars, and those that only add or drop dimensions of size 1."""
    if program.rank[op] < 2 or program.kind[op] == ASKS:
        return False
    is_same = program.kind[op] == KEEPS and program.opcodes[op] == BROADCAST
    is_trivial = state.squeezed[op] and program.kind[op] != KEEPS
    return _is_counted(program, op) or is_filled(program, op) or is_trivial or is_same


@compiled
def _is_linked(program, state, use):
    """Return True if a use connects two members of a cluster."""
    base, reader = program.read[use], program.reader[use]
    if not _is_member(program, state, base) or not _is_member(program, state, reader):
        return False
    if state.source[use] != base or reads_twin(program, state, use):
        return False
    return not _is_copied(program, state, use) and _are_alike(program, state, base, reader)


@compiled
def _are_alike(program, state, one, other):
    """Return True if two results have the same shape, dimensions of size 1 left out if the compiler
    drops them."""
    if state.squeezed[one] or state.squeezed[other]:
        return only_ones_differ(program, one, other)
    is_same = program.rank[one] == program.rank[other]
    for k in range(program.rank[one]):
        is_same &= program.sizes[one, k] == program.sizes[other, k]
    return is_same


@compiled
def _is_copied(program, state, use):
    """Return True if a copy stands before a use."""
    made, read = state.buffers[state.source[use]], state.uses[use]
    return UNSET not in (made, read) and made != read


@compiled
def _collect(program, state, seen, members, op):
    """Write the cluster of `op` into `members`, and mark it in `seen`; return its size."""
    members[0], seen[op], size, done = op, True, 1, 0
    while done < size:
        one = members[done]
        done += 1
        if one != op and is_filled(program, one):
            continue  # unless the cluster begins with it, a broadcast connects no others
        for use in range(program.use_starts[one], program.use_starts[one + 1]):
            base = program.read[use]
            if not seen[base] and _is_linked(program, state, use):
                members[size], seen[base] = base, True
                size += 1
        for k in range(program.reader_starts[one], program.reader_starts[one + 1]):
            reader = program.reader[program.reading[k]]
            if not seen[reader] and _is_linked(program, state, program.reading[k]):
                members[size], seen[reader] = reader, True
                size += 1
    return size


@compiled
def _weigh_operands(program, state, op, marked, number):
    """Return the summed weights of what a member reads from outside of its cluster. Each tensor
    counts once; `marked` has the number of the cluster that counted each instruction last."""
    total = 0
    if is_filled(program, op):
        return total
    for use in range(program.use_starts[op], program.use_starts[op + 1]):
        source, rank = state.source[use], program.rank[program.read[use]]
        if rank < 2 or _is_linked(program, state, use) or reads_twin(program, state, use):
            continue
        if _is_copied(program, state, use):
            total += COPIED
        elif marked[source] != number:
            marked[source] = number
            total += _weigh(program, source)
    return total


@compiled
def _weigh_readers(program, given, state, op, marked, number):
    """Return the summed weights of a member's readers outside of its cluster. Each counts once, and
    equal broadcasts of a tensor are one instruction: they are marked at the tensor's place in
    the second row of `marked` (2, instructions)."""
    total = 0
    for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
        use = program.reading[k]
        reader = program.reader[use]
        is_missing = program.kind[reader] == ASKS and given[reader] == UNSET
        if is_missing or state.source[use] != op or _is_linked(program, state, use):
            continue
        if reads_twin(program, state, use):
            continue
        row, weight = 0, _weigh_reader(program, state, op, reader)
        if _is_copied(program, state, use):
            total += COPIED
            continue
        if program.kind[reader] == BROADCASTS:
            row, reader = 1, _find_root(program, state, op)
        if program.kind[reader] == GIVES or marked[row, reader] != number:
            marked[row, reader] = number
            total += weight
    return total


@compiled
def _find_root(program, state, op):
    """Return the instruction whose result `op` is but for dimensions of size 1."""
    while state.squeezed[op] and not _is_counted(program, op):
        use = program.main[op, 0]
        if use == NONE or not _is_linked(program, state, use):
            return op
        op = program.read[use]
    return op


@compiled
def _weigh_reader(program, state, op, reader):
    """Return the weight of a reader of `op`. In front of a request for a tensor that loses its
    dimensions of size 1 stands a reshape, which gives them back."""
    kind = program.kind[reader]
    if kind == ASKS and state.squeezed[op] and count_ones(program.sizes[op], program.rank[op]) > 0:
        return HEAVY
    is_window = program.opcodes[reader] == REDUCE_WINDOW
    weight = _weigh(program, reader)
    is_plain = is_window or kind in (ASKS, REDUCES, BROADCASTS)
    return weight if weight == HEAVY or is_plain else LAST


@compiled
def _weigh(program, op):
    """Return the weight of an instruction that a member reads, or of a reader if it is heavy."""
    return HEAVY if is_product(program, op) or program.kind[op] == RESHAPES else PLAIN


@compiled
def _count_padded(program, op, layout):
    """Return the elements of a result in a layout, padded to whole tiles of 8 x 128."""
    total, sizes = 1, program.sizes[op]
    for slot in range(program.rank[op]):
        size = sizes[unpack(layout, slot)]
        if slot == 0:
            size = -(-size // LANES) * LANES
        elif slot == 1:
            size = -(-size // SUBLANES) * SUBLANES
        total *= size
    return total
