"""Number the distinct states that instructions and uses have in all configurations (compiled).

A point is an instruction or a use (an operand as one instruction reads it). Its state in a
configuration is its layouts, and how its tensor is copied. Configurations agree in most states, so
each distinct state of a point is stored once, and a configuration is a row of state numbers.

The last functions list the tensors of each state, and compute how a layout lies in memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.operations import NONE
from solution.features.propagation.canonical import BITS
from solution.features.propagation.instructions import KEEPS, RESHAPES, TRANSPOSES, Instructions
from solution.features.propagation.orders import (
    ALIKE,
    SCATTERED,
    UNSET,
    aligned,
    compare,
    compiled,
    pack,
    row_major,
    transposed,
)

# Columns of States.layouts. A state of an instruction has the layouts of the result and of the two
# main operands as the instruction reads them, and the kind of copy. A state of a use with a copy
# has the layouts before and after the copy, UNSET, and the kind of copy.
MADE, FIRST, SECOND, COPY = range(4)
NO_STATE = -1


class Stored(NamedTuple):
    """The layouts of a program's pieces. A piece has several entries: the layouts for different
    requests. Entry e of piece p, which has n = `op_starts[p + 1] - op_starts[p]` instructions, is
    at `op_offsets[p] + e * n` in `buffers` and `op_marks`. Entries of uses are stored likewise."""

    ops: np.ndarray  # instructions of all pieces, piece after piece
    uses: np.ndarray
    op_starts: np.ndarray  # (pieces + 1,) int64, where each piece begins in `ops`
    use_starts: np.ndarray
    op_offsets: np.ndarray  # (pieces,) int64, where entry 0 of each piece begins in `buffers`
    use_offsets: np.ndarray
    buffers: np.ndarray  # int64, layouts of results
    op_marks: np.ndarray  # int8, kinds of copies of reshapes and transposes
    reads: np.ndarray  # int64, layouts in which uses read their tensors
    made: np.ndarray  # int64, layouts in which these tensors are written
    use_marks: np.ndarray  # int8, kinds of copies of uses


class Loaded(NamedTuple):
    """The layouts of all points in one configuration; `entries`: each piece's entry in Stored."""

    buffers: np.ndarray
    uses: np.ndarray
    made: np.ndarray
    marks: np.ndarray
    entries: np.ndarray


class States(NamedTuple):
    """A table of distinct states in order of first occurrence, of which `total` rows are used."""

    point: np.ndarray  # (capacity,) int64, the instruction or use of each state
    layouts: np.ndarray  # (capacity, 4) int64, columns MADE ... COPY
    # (capacity,) int64, the next state of the same instruction or use, or NO_STATE: a linked list
    following: np.ndarray
    first: np.ndarray  # (points,) int64, the first state of each point, or NO_STATE
    total: np.ndarray  # (1,) int64, the number of states


def make_loaded(instructions: Instructions, pieces: int) -> Loaded:
    """Return a Loaded without layouts. Instructions and uses of a rank below 2 never get one."""
    count, uses = instructions.number, len(instructions.read)
    return Loaded(
        np.full(count, UNSET), np.full(uses, UNSET), np.full(uses, UNSET),
        np.full(uses + count, ALIKE, np.int8), np.full(pieces, NO_STATE),
    )  # fmt: skip


def make_states(points: int, capacity: int) -> States:
    """Return an empty table with room for `capacity` states."""
    return States(
        np.empty(capacity, np.int64), np.empty((capacity, 4), np.int64),
        np.empty(capacity, np.int64), np.full(points, NO_STATE), np.zeros(1, np.int64),
    )  # fmt: skip


def grow(states: States) -> States:
    """Return a copy of the table with twice the capacity."""
    grown, count = make_states(len(states.first), 2 * len(states.point)), int(states.total[0])
    for new, old in zip(grown[:3], states[:3], strict=True):
        new[:count] = old[:count]
    grown.first[:], grown.total[:] = states.first, states.total
    return grown


@njit(cache=True, nogil=True)
def number_states(program, stored, entries, loaded, states, numbers):
    """Write the number of each point's state (see Points) into `numbers` (configs, instructions +
    uses) int32. Stop if the table may be too small for the next configuration; return the number
    of configurations done.

    Args:
        stored: the layouts of the program's pieces (Stored).
        entries: (configs, pieces) int64, the entry in `stored` of each configuration's pieces.
        loaded: the layouts of the whole program in one configuration (Loaded), working memory.
        states: the table, to which new states are added.
    """
    count, uses, main = program.kind.size, program.read.size, program.main
    for row in range(len(entries)):
        if states.total[0] + count + uses > states.point.size:
            return row
        for piece in range(entries.shape[1]):
            if loaded.entries[piece] != entries[row, piece]:
                loaded.entries[piece] = entries[row, piece]
                _load(stored, piece, entries[row, piece], loaded)
        for op in range(count):
            first = loaded.uses[main[op, 0]] if main[op, 0] >= 0 else UNSET
            second = loaded.uses[main[op, 1]] if main[op, 1] >= 0 else UNSET
            copy = loaded.marks[uses + op]
            numbers[row, op] = _find(states, op, loaded.buffers[op], first, second, copy)
        for use in range(uses):
            made, read, copy = loaded.made[use], loaded.uses[use], loaded.marks[use]
            if copy == ALIKE:  # a use without a copy has one state, whatever its layouts
                made, read = UNSET, UNSET
            numbers[row, count + use] = _find(states, count + use, made, read, UNSET, copy)
    return len(entries)


@compiled
def _load(stored, piece, entry, loaded):
    """Copy entry number `entry` of a piece's layouts into the layouts of the whole program."""
    uses = loaded.uses.size
    first, end = stored.op_starts[piece], stored.op_starts[piece + 1]
    start = stored.op_offsets[piece] + entry * (end - first)
    for k in range(end - first):
        op = stored.ops[first + k]
        loaded.buffers[op] = stored.buffers[start + k]
        loaded.marks[uses + op] = stored.op_marks[start + k]
    first, end = stored.use_starts[piece], stored.use_starts[piece + 1]
    start = stored.use_offsets[piece] + entry * (end - first)
    for k in range(end - first):
        use = stored.uses[first + k]
        loaded.uses[use] = stored.reads[start + k]
        loaded.made[use] = stored.made[start + k]
        loaded.marks[use] = stored.use_marks[start + k]


@compiled
def _find(states, point, made, first, second, copy):
    """Return the number of the state of `point` with these layouts and this kind of copy; add the
    state if it is new."""
    last, number = NO_STATE, states.first[point]
    while number != NO_STATE:
        known = states.layouts[number]
        same = known[MADE] == made and known[FIRST] == first
        if same and known[SECOND] == second and known[COPY] == copy:
            return number
        last, number = number, states.following[number]
    number = states.total[0]
    states.total[0] += 1
    states.point[number], states.following[number] = point, NO_STATE
    states.layouts[number, MADE], states.layouts[number, FIRST] = made, first
    states.layouts[number, SECOND], states.layouts[number, COPY] = second, copy
    if last == NO_STATE:
        states.first[point] = number
    else:
        states.following[last] = number
    return number


@compiled
def mark_copies(program, free, state, marks):
    """Write into `marks` (uses + instructions,) the kind of copy of each use, then of each reshape
    and transpose, as on a CPU. `free`: (instructions,) True if a result needs no copy."""
    marks[:] = ALIKE
    for use in range(state.uses.size):
        base, source = program.read[use], state.source[use]
        wanted, made = state.uses[use], state.buffers[source]
        if wanted == UNSET or made == UNSET or free[base]:
            continue
        kind = compare(made, wanted, program.sizes[base], program.rank[base])
        # an element-wise reader copies inside its loop, even if an earlier reader made a copy
        again = program.kind[program.reader[use]] == KEEPS
        if kind != ALIKE and (again or not _is_copied_before(program, state, use)):
            marks[use] = kind
    for op in range(program.kind.size):
        if program.kind[op] == RESHAPES or program.kind[op] == TRANSPOSES:
            marks[state.uses.size + op] = _compare_sides(program, state, op)


@compiled
def _is_copied_before(program, state, use):
    """Return True if an earlier use of the same tensor reads it in the same layout."""
    base = program.read[use]
    for k in range(program.reader_starts[base], program.reader_starts[base + 1]):
        other = program.reading[k]
        if other >= use:
            return False
        if state.source[other] == state.source[use] and state.uses[other] == state.uses[use]:
            return True
    return False


@compiled
def _compare_sides(program, state, op):
    """Return the kind of copy (ALIKE ... SCATTERED) of a reshape or transpose; ALIKE: a bitcast."""
    use = program.use_starts[op]
    if program.use_starts[op + 1] != use + 1 or program.rank[op] < 2:
        return ALIKE
    base, made = program.read[use], state.buffers[op]
    read, rank, read_rank = state.uses[use], program.rank[op], program.rank[base]
    if read == UNSET:
        read = row_major(read_rank) if read_rank < 2 else state.buffers[state.source[use]]
    if made == UNSET or read == UNSET:
        return ALIKE
    if program.kind[op] == TRANSPOSES:
        bitcast = transposed(read, program.dimensions[op], rank)
    else:
        bitcast = aligned(read, program.sizes[base], read_rank, program.sizes[op], rank)
    if bitcast == UNSET:
        return SCATTERED
    return compare(bitcast, made, program.sizes[op], rank)


@njit(cache=True, nogil=True)
def pack_given(rows, ranks, packed):
    """Write requested layouts `rows` (pairs, 3, 6), minor to major, as integers into `packed`
    (pairs, 3) int64; UNSET if no layout is requested, or one that does not fit the tensor's rank
    (`ranks`). Slots with -1 are skipped; unlisted dimensions follow, the last one most minor."""
    order = np.zeros(rows.shape[2], np.int64)
    for pair in range(len(rows)):
        for tensor in range(rows.shape[1]):
            packed[pair, tensor] = _pack_one(rows[pair, tensor], ranks[pair, tensor], order)


@compiled
def _pack_one(row, rank, order):
    count, seen = 0, 0
    for slot in range(row.size):
        if row[slot] < 0:
            continue
        if row[slot] >= rank or seen >> row[slot] & 1:
            return UNSET
        order[count] = row[slot]
        seen |= 1 << row[slot]
        count += 1
    if row[0] < 0 or count == 0:
        return UNSET
    for dimension in range(rank - 1, -1, -1):
        if not seen >> dimension & 1:
            order[count] = dimension
            count += 1
    return pack(order, rank)


@dataclass(frozen=True)
class Points:
    """The instruction or use of each state, and the instructions that compute the state's tensors.
    A state is the layouts and the kind of copy of an instruction, or of a use (an operand as one
    instruction reads it)."""

    is_use: np.ndarray  # (states,) bool: True for a use, False for an instruction
    instruction: np.ndarray  # (states,) int64, the instruction; for a use, its reader
    made: np.ndarray  # (states,) int64, the instruction whose tensor is computed or copied
    read: np.ndarray  # (states, 2) int64, instructions of the main operands; `made` if missing


def find_points(instructions: Instructions, point: np.ndarray) -> Points:
    """Return the Points of states, given the number `point` (states,) of each state's instruction
    or use: instructions are numbered first, then uses."""
    is_use = point >= instructions.number
    read = np.append(instructions.read, 0)  # index 0, a placeholder for "no use", must exist
    use = np.where(is_use, point - instructions.number, 0)
    instruction = np.where(is_use, np.append(instructions.reader, 0)[use], point)
    made = np.where(is_use, read[use], point)
    main = instructions.main[instruction]
    is_read = ~is_use[:, None] & (main != NONE)
    return Points(is_use, instruction, made, np.where(is_read, read[main], made[:, None]))


def list_dimensions(layouts: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the dimensions (states, 6), minor to major, that packed `layouts` (states,) list; NONE
    past the rank."""
    slots = np.arange(MAX_RANK)
    dimensions = (layouts[:, None] >> (BITS * slots)) & (1 << BITS) - 1
    return np.where((slots < rank[:, None]) & (layouts[:, None] >= 0), dimensions, NONE)


def lay_out(
    layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return log2 of each dimension's stride in elements (states, 6), and log2 of the sizes, minor
    to major (states, 6); both are 0 past the rank."""
    dimensions = list_dimensions(layouts, rank)
    is_there = dimensions >= 0
    logs = np.log2(np.take_along_axis(sizes, np.maximum(dimensions, 0), axis=1)) * is_there
    # stride of a dimension = product of the sizes of all more minor dimensions
    strides = np.zeros((len(layouts), MAX_RANK))
    row, slot = np.nonzero(is_there)
    strides[row, dimensions[row, slot]] = (np.cumsum(logs, axis=1) - logs)[row, slot]
    return strides, logs


def list_windows(graph: Graph, instructions: Instructions) -> np.ndarray:
    """Return the window sizes (instructions, 6) of poolings; 1 for other instructions."""
    sizes = graph.node_features[:, vocabulary.WINDOW_SIZE]
    is_pooling = graph.node_opcodes == OPCODE_IDS["reduce-window"]
    sizes = np.where(is_pooling[:, None], np.maximum(sizes, 1), 1)
    return np.asarray(np.vstack([sizes, np.ones((1, MAX_RANK))])[instructions.node])
