"""Find the tensors of which a TPU's compiler drops the dimensions of size 1 (compiled).

Before it assigns layouts, the compiler moves a reshape that only adds such dimensions past the
element-wise instructions that read it: means, variances and softmax sums, which jax keeps in the
shape of their operand, become tensors of a lower rank. A requested layout stops this: the reshape
stays in front of the custom call, and what reads the custom call keeps its shape.
"""

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.propagation.calls import IS_ELEMENTWISE
from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    KEEPS,
    REDUCES,
    RESHAPES,
)
from solution.features.propagation.orders import UNSET, compiled, count_ones
from solution.features.propagation.worklist import NONE, only_ones_differ

BROADCAST, CONSTANT = OPCODE_IDS["broadcast"], OPCODE_IDS["constant"]


@compiled
def find_squeezed(program, given, squeezed):
    """Write into `squeezed` (instructions,) bool whether the compiler drops the dimensions of size
    1 of each result. `given`: (instructions,) the layout that each custom call requests, or UNSET.
    """
    squeezed[:] = False
    for op in range(program.kind.size):
        kind = program.kind[op]
        if kind == KEEPS and IS_ELEMENTWISE[program.opcodes[op]]:
            squeezed[op] = _reads_squeezed(program, given, squeezed, op)
        elif kind in (RESHAPES, REDUCES, BROADCASTS) or (
            kind == KEEPS and program.opcodes[op] == BROADCAST
        ):
            squeezed[op] = _only_adds_ones(program, given, squeezed, op)
    for op in range(program.kind.size):
        if not squeezed[op] and is_filled(program, op):
            squeezed[op] = _are_readers_squeezed(program, squeezed, op)


@compiled
def _only_adds_ones(program, given, squeezed, op):
    """Return True if `op` only adds or drops dimensions of size 1, no layout of its operand or
    result is requested, and its operand is squeezed, has no such dimensions, or has a rank below 2:
    whether a vector of one element is squeezed may depend on another piece of the program."""
    use = program.main[op, 0]
    if use == NONE:
        return False
    base = program.read[use]
    if program.opcodes[op] == BROADCAST and program.rank[base] == 0:
        return False
    if not only_ones_differ(program, base, op) or _is_asked(given, program.behind[op]):
        return False
    if _is_asked(given, program.before[use]) or _is_asked(given, program.behind[base]):
        return False
    rank = program.rank[base]
    return squeezed[base] or rank < 2 or count_ones(program.sizes[base], rank) == 0


@compiled
def _reads_squeezed(program, given, squeezed, op):
    """Return True if an element-wise instruction reads a squeezed tensor, and no others but
    constants and broadcasts of scalars."""
    found = False
    for use in range(program.use_starts[op], program.use_starts[op + 1]):
        base = program.read[use]
        is_asked = _is_asked(given, program.before[use]) or _is_asked(given, program.behind[base])
        if squeezed[base] and not is_asked:
            found = True
        elif program.rank[base] > 0 and not is_filled(program, base):
            return False
    return found


@compiled
def is_filled(program, op):
    """Return True for constants and broadcasts of scalars."""
    if program.opcodes[op] == CONSTANT:
        return program.kind[op] != ASKS
    if program.kind[op] != BROADCASTS or program.main[op, 0] == NONE:
        return False
    return program.rank[program.read[program.main[op, 0]]] == 0


@compiled
def _are_readers_squeezed(program, squeezed, op):
    """Return True if all readers of a result, not counting custom calls, are squeezed."""
    found = False
    for k in range(program.reader_starts[op], program.reader_starts[op + 1]):
        reader = program.reader[program.reading[k]]
        if program.kind[reader] != ASKS:
            if not squeezed[reader]:
                return False
            found = True
    return found


@compiled
def _is_asked(given, call):
    return call != NONE and given[call] != UNSET
