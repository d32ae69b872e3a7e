"""Find the instructions that XLA's CPU backend gives to a library (YNNPACK) with a reduction.

A fusion starts at each reduction, and at each pooling whose windows do not overlap. It grows
backwards over element-wise operations and dots, as long as every tensor is row-major, no copy or
custom call stands between, and nobody outside the fusion reads the tensor. It grows forwards while
a single instruction reads its result. A requested layout therefore cuts the fusion, even if the
tensor already has that layout, and so does a copy. The library does not write the tensors inside a
fusion to memory. Most measured programs are faster for it if the fusion ends in a reduction, unless
its loops are too short (solution.features.propagation.state_table).

Slower is what the library leaves out: reductions in two steps
(solution.features.propagation.splitting), and dots whose left matrix is contracted along its first
dimension. Swapping a dot's operands to save a transpose causes that, for instance in the gradient
of weights; requesting the dot's layout prevents it.

Source: programs compiled by jaxlib 0.10.2 (tests/collecting/test_library.py).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operands import NONE, find_operands
from solution.features.propagation.canonical import UNSET, reads_across
from solution.features.propagation.instructions import Instructions
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.splitting import mark_split, weigh_windows
from solution.features.propagation.states import COPY, MADE, list_windows, make_row_major

ELEMENTWISE = """
abs add ceil convert divide exponential exponential-minus-one floor log log-plus-one logistic
maximum minimum multiply negate power rsqrt sign sqrt subtract tanh
"""
MAKING = [OPCODE_IDS[name] for name in ELEMENTWISE.split()]
SHAPING = [OPCODE_IDS[name] for name in ("broadcast", "reshape", "bitcast")]
PRODUCTS = [OPCODE_IDS[name] for name in ("dot", "convolution")]
REDUCE, WINDOWS = OPCODE_IDS["reduce"], OPCODE_IDS["reduce-window"]
FLOAT32 = vocabulary.ELEMENT_TYPE.start + 11
FEWEST = 4096  # elements read or written, below which XLA's loops compute it
MOST = 96  # instructions in a fusion and operands from outside, as XLA counts, scalars included
# What the library can do with an instruction: nothing; compute it inside a fusion; start a fusion
# at a reduction or a pooling; or compute the windows of a reduction in two steps.
NOTHING, JOINS, REDUCTION, POOLING, SPLIT = range(5)
NOBODY = -1  # owner of an instruction that is in no fusion


class Reads(NamedTuple):
    """The readers of each tensor, and what the library can do with each instruction."""

    ability: np.ndarray  # (instructions,) int8
    inside: np.ndarray  # (instructions,) int8, its count inside a fusion
    outside: np.ndarray  # (instructions,) int8, its count as an operand from outside
    passed: np.ndarray  # (instructions,) bool, custom calls, which do not count as readers
    use_starts: np.ndarray  # as in Instructions
    read: np.ndarray
    reader: np.ndarray
    before: np.ndarray  # as in Instructions
    behind: np.ndarray
    # (instructions + 1,), the start of each instance's readers in `reading`
    reader_starts: np.ndarray
    reading: np.ndarray  # (uses,), uses sorted by the instance they read


def join_library(propagation: Propagation, numbered: Numbered) -> np.ndarray:
    """Return which fusion kind each instruction is in: (configs, instructions) int8.

    The values are NOTHING, REDUCTION, POOLING or SPLIT. Instructions fused with a split reduction
    count as POOLING.
    """
    own, layouts = propagation.instructions, numbered.layouts
    joined = np.full((len(numbered.numbers), own.count), NOTHING, np.int8)
    if propagation.backend.by_library:
        rank = np.append(own.rank, np.zeros_like(own.read))[numbered.place]
        row_major = (rank < 2) | (layouts[:, MADE] == make_row_major(rank))
        opcodes = own.opcodes
        largest = _find_largest(own)
        ability = _list_abilities(propagation.graph, own, opcodes, largest)
        split = mark_split(own, numbered, (ability == REDUCTION) & (weigh_windows(own) > 0))
        reads = Reads(
            ability, *_count(own, opcodes, largest), ~own.is_programs, own.use_starts, own.read,
            own.reader, own.before, own.behind, *propagation.readings,
        )  # fmt: skip
        asks = ~own.is_programs[np.minimum(numbered.place, own.count - 1)]
        apart = (layouts[:, COPY] > 0) | (asks & (layouts[:, MADE] >= 0))
        _join(reads, row_major, apart, split, numbered.numbers, joined)
    return joined


def find_slow_products(
    graph: Graph, own: Instructions, place: np.ndarray, made: np.ndarray
) -> np.ndarray:
    """Tell if the library leaves a dot out (states,) bool.

    Args:
        place: (states,) an instruction or a use, as in Numbered.
        made: (states,) the layout of its result.
    """
    across = {node: reads_across(each) for node, each in find_operands(graph).letters.items()}
    is_dot = own.is_programs & (own.opcodes == OPCODE_IDS["dot"])
    node = np.append(np.where(is_dot, own.node, NONE), NONE)
    slow = np.array([across.get(one, (False, False)) for one in node.tolist()])
    turned = np.append(own.turned, UNSET)
    place = np.minimum(place, own.count)
    is_turned = (turned[place] != UNSET) & (made == turned[place])
    return np.where(is_turned, slow[place, 1], slow[place, 0])


def _list_abilities(
    graph: Graph, own: Instructions, opcodes: np.ndarray, largest: np.ndarray
) -> np.ndarray:
    """Return what the library can do with each instruction (instructions,) int8."""
    is_known = own.is_programs & (np.append(graph.node_features[:, FLOAT32], 0)[own.node] > 0)
    is_large = is_known & (np.maximum(own.sizes.prod(axis=1), largest) >= FEWEST)
    ability = np.full(own.count, NOTHING, np.int8)
    ability[is_large & np.isin(opcodes, [*MAKING, *PRODUCTS])] = JOINS
    ability[is_known & np.isin(opcodes, SHAPING)] = JOINS
    # A reduction of several tensors, such as a maximum with its position, is not supported.
    is_plain = is_large & (np.diff(own.use_starts) <= 2)
    ability[is_plain & (opcodes == REDUCE)] = REDUCTION
    ability[is_plain & (opcodes == WINDOWS) & _find_tiling(graph, own)] = POOLING
    ability[_find_extremes(opcodes, own)] = JOINS
    # XLA replaces a division by few numbers with a multiplication by their reciprocals.
    by = own.read[opcodes[own.reader] == OPCODE_IDS["divide"]]
    is_few = (opcodes[by] == OPCODE_IDS["broadcast"]) & (largest[by] < FEWEST)
    ability[by[is_few]] = NOTHING
    return ability


def _find_extremes(opcodes: np.ndarray, own: Instructions) -> np.ndarray:
    """Return maxima of a reduction and its initial value (instructions,), which XLA drops."""
    reads_reduction = np.zeros(own.count, bool)
    np.logical_or.at(reads_reduction, own.reader, opcodes[own.read] == REDUCE)
    return reads_reduction & np.isin(opcodes, [OPCODE_IDS["maximum"], OPCODE_IDS["minimum"]])


def _find_tiling(graph: Graph, own: Instructions) -> np.ndarray:
    """Return windows (instructions,) that neither overlap nor cross the border."""
    read = np.append(own.read, 0)[own.main[:, 0]]
    return np.asarray((own.sizes * list_windows(graph, own) == own.sizes[read]).all(axis=1))


def _find_largest(own: Instructions) -> np.ndarray:
    """Return the elements of the largest operand (instructions,); 1 if it has none."""
    found = np.ones(own.count, np.int64)
    np.maximum.at(found, own.reader, own.sizes.prod(axis=1)[own.read])
    return found


def _count(
    own: Instructions, opcodes: np.ndarray, largest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Reads.inside and Reads.outside; XLA fuses after simplifying shapes and scalars."""
    elements = own.sizes.prod(axis=1)
    inside = ~np.isin(opcodes, SHAPING)
    inside |= (opcodes == OPCODE_IDS["broadcast"]) & (largest > 1) & (largest < elements)
    return inside.astype(np.int8), (elements > 1).astype(np.int8)


@njit(cache=True, nogil=True)
def _join(reads, row_major, apart, split, numbers, joined):
    """Mark what is fused (configs, instructions).

    Args:
        row_major: (states,) bool, the result is row-major.
        apart: (states,) bool, a copy is written or read, or a custom call requests a layout.
        split: (configs, instructions) bool, reductions computed in two steps.
        numbers: (configs, places) state numbers of the instructions, then of the uses.
    """
    count = reads.ability.size
    owner, outside = np.empty(count, np.int64), np.empty(count, np.int64)
    queue = np.empty(reads.read.size + 1, np.int64)
    for row in range(len(numbers)):
        owner[:], outside[:] = NOBODY, NOBODY
        for first in range(count - 1, -1, -1):
            begins = reads.ability[first] >= REDUCTION and owner[first] == NOBODY
            if begins and (reads.ability[first] == REDUCTION or row_major[numbers[row, first]]):
                _grow(reads, row_major, apart, numbers[row], owner, outside, queue, first)
        for own in range(count):
            joined[row, own] = NOTHING
            if split[row, own]:
                joined[row, own] = SPLIT
            elif owner[own] != NOBODY:
                joined[row, own] = POOLING if split[row, owner[own]] else reads.ability[owner[own]]


@njit(cache=True, nogil=True)
def _grow(reads, row_major, apart, states, owner, outside, queue, first):
    """Grow the fusion of the reduction `first`: operands, then readers, breadth first."""
    last, size = first, 0
    while last != NOBODY:
        size, end = _add(reads, owner, outside, queue, 0, size, first, last)
        tried = 0
        while tried < end and size < MOST:
            found = queue[tried]
            tried += 1
            able = _may_join(reads, row_major, apart, states, owner, found)
            if able and _is_read_inside(reads, apart, states, owner, first, found):
                size, end = _add(reads, owner, outside, queue, end, size, first, found)
        last = _find_reader(reads, apart, states, last)
        able = last != NOBODY and _may_join(reads, row_major, apart, states, owner, last)
        if size >= MOST or not able:
            last = NOBODY


@njit(cache=True, nogil=True)
def _may_join(reads, row_major, apart, states, owner, found):
    """Tell if an instruction is in no fusion, supported, and row-major."""
    able = reads.ability[found] != NOTHING and owner[found] == NOBODY
    return able and row_major[states[found]] and not apart[states[found]]


@njit(cache=True, nogil=True)
def _add(reads, owner, outside, queue, end, size, first, found):
    """Add an instruction; return the fusion's size with outside operands, and the queue's end."""
    owner[found] = first
    size += reads.inside[found]
    if outside[found] == first:
        size -= reads.outside[found]
    for use in range(reads.use_starts[found], reads.use_starts[found + 1]):
        operand = reads.read[use]
        if owner[operand] != first:
            queue[end] = operand
            end += 1
            if outside[operand] != first:
                outside[operand] = first
                size += reads.outside[operand]
    return size, end


@njit(cache=True, nogil=True)
def _is_apart(reads, apart, states, use):
    """Tell if the use reads a copy, or a custom call stands before it."""
    before, behind = reads.before[use], reads.behind[reads.read[use]]
    return (
        apart[states[reads.ability.size + use]]
        or (before != NOBODY and apart[states[before]])
        or (behind != NOBODY and apart[states[behind]])
    )


@njit(cache=True, nogil=True)
def _is_read_inside(reads, apart, states, owner, first, found):
    """Tell if all readers are in the fusion of `first`, with nothing in between."""
    for place in range(reads.reader_starts[found], reads.reader_starts[found + 1]):
        use = reads.reading[place]
        reader = reads.reader[use]
        if reads.passed[reader]:
            continue
        if owner[reader] != first or _is_apart(reads, apart, states, use):
            return False
    return True


@njit(cache=True, nogil=True)
def _find_reader(reads, apart, states, found):
    """Return the only reader of a tensor; NOBODY if there are more or something stands between."""
    only = NOBODY
    for place in range(reads.reader_starts[found], reads.reader_starts[found + 1]):
        use = reads.reading[place]
        reader = reads.reader[use]
        if reads.passed[reader]:
            continue
        if _is_apart(reads, apart, states, use) or (only != NOBODY and only != reader):
            return NOBODY
        only = reader
    return only
