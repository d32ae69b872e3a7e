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
4. If no reduction does either, clusters of element-wise instructions may move to a layout with less
   padding, once; see solution.features.propagation.clusters.

Some tensors lose their dimensions of size 1 before (solution.features.propagation.squeezing). Which
copies the layouts need: see solution.features.propagation.tiled_copies.
"""

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.propagation.instructions import (
    BROADCASTS,
    CHANGES,
    KEEPS,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
)
from solution.features.propagation.orders import (
    ALIKE,
    BITS,
    UNSET,
    compare,
    compiled,
    transposed,
    unpack,
)
from solution.features.propagation.squeezing import find_squeezed
from solution.features.propagation.tiled_copies import is_bitcast, is_product
from solution.features.propagation.worklist import (
    MANDATORY,
    NO_FLAG,
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
DOT = OPCODE_IDS["dot"]
# Kinds of instructions that request kept layouts, before and after dots and convolutions do.
# Clusters begin at element-wise instructions (KEEPS), broadcasts of scalars, and constants
# (CHANGES).
KEPT_FIRST, KEPT_LAST = (RESHAPES, REDUCES), (KEEPS, BROADCASTS, CHANGES)


@compiled
def run_pass(program, given, feeds, state, turn):
    """Run pass number `turn` (from 0): write the layout of every result and use into `state`.

    Args:
        given: (instructions,) the layout that each custom call requests, or UNSET.
        feeds: (instructions,) bool: True for dots that only another dot reads, see feeds_dot().
        state: working memory; kept_buffers and kept_uses have the layouts kept by earlier passes.
    """
    reset(state)
    find_sources(program, given, state.source)
    find_squeezed(program, given, state.squeezed)
    _request_boundary(program, state)
    for kind in KEPT_FIRST:
        _request_kept(program, state, kind)
    _request_products(program, feeds, state, turn)
    for kind in KEPT_LAST:
        _request_kept(program, state, kind)
    request_configuration(program, given, state)
    propagate_all(program, state)
    fill_unconstrained(program, given, state)


@compiled
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


@compiled
def _request_boundary(program, state):
    """Constrain parameters and results to the layouts that they have at the program's boundary."""
    last = program.kind.size - 1
    for op in program.order:
        if program.fixed[op] != UNSET and program.use_starts[op] == program.use_starts[op + 1]:
            set_buffer(program, state, op, program.fixed[op], MANDATORY, URGENT)
    for use in range(program.use_starts[last], program.use_starts[last + 1]):
        set_use(program, state, use, program.device[program.read[use]], MANDATORY, URGENT)


@compiled
def _request_kept(program, state, kind):
    """Constrain the instructions of a kind to the layouts that earlier passes kept for them
    (kept_buffers, kept_uses), beginning with the program's last instruction."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        if program.kind[op] == kind and state.kept_buffers[op] != UNSET:
            for use in range(program.use_starts[op], program.use_starts[op + 1]):
                if state.kept_uses[use] != UNSET:
                    is_trivial = only_ones_differ(program, program.read[use], op)
                    urgent = URGENT if kind == RESHAPES and is_trivial else NO_FLAG
                    set_use(program, state, use, state.kept_uses[use], MANDATORY, urgent)
            set_buffer(program, state, op, state.kept_buffers[op], MANDATORY, URGENT)


@compiled
def _request_products(program, feeds, state, turn):
    """Constrain dots and convolutions, beginning with the program's last one. In passes before
    LAST_GROUPED, skip dots that only another dot reads (`feeds`). `turn`: the number of the pass,
    from 0."""
    for k in range(program.order.size - 1, -1, -1):
        op = program.order[k]
        if not is_product(program, op) or program.fixed[op] == UNSET:
            continue
        if turn < LAST_GROUPED and feeds[op]:
            continue
        set_buffer(program, state, op, program.fixed[op], MANDATORY, URGENT)
        for use in range(program.use_starts[op], program.use_starts[op + 1]):
            if program.wanted[use] != UNSET:
                set_use(program, state, use, program.wanted[use], MANDATORY, NO_FLAG)


@compiled
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


@compiled
def keep_reshapes(program, state):
    """Choose and keep layouts for reshapes that move data, to be requested in the next passes.
    Return True if a reshape without kept layouts got some."""
    found = False
    for op in range(program.kind.size):
        use = program.use_starts[op]
        if program.kind[op] != RESHAPES or program.wanted[use] == UNSET or state.squeezed[op]:
            continue
        if state.kept_buffers[op] == UNSET and not is_bitcast(program, state, op, use):
            state.kept_buffers[op], state.kept_uses[use] = program.fixed[op], program.wanted[use]
            found = True
    return found


@compiled
def keep_reductions(program, state):
    """Choose and keep layouts for reductions that reorder dimensions, to be requested in the next
    passes. Return True if a reduction without kept layouts got some."""
    found = False
    for op in range(program.kind.size):
        use = program.main[op, 0]
        if program.kind[op] != REDUCES or use == NONE or program.rank[op] < 2:
            continue
        if state.squeezed[op]:
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


@compiled
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
