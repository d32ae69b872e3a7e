"""Find the instructions that XLA's CPU backend gives to a library (YNNPACK) with a reduction.

A fusion starts at each reduction, and at each pooling whose windows do not overlap. It grows
backwards over element-wise operations and dots, as long as every tensor is row-major, no copy or
custom call stands between, and only instructions in the fusion read the tensor. It grows forwards
while a single instruction reads its result. A requested layout therefore cuts the fusion, even if
the tensor already has that layout, and so does a copy. The library does not write the tensors
inside a fusion to memory. Most measured programs are faster with the library if the fusion ends in
a reduction, unless its loops are too short (solution.features.propagation.state_table).

The library computes neither reductions in two steps nor dots whose left matrix is contracted along
its first dimension. XLA's loops for these are slower. A dot gets such a left matrix if its operands
are swapped to save a transpose, for instance in the gradient of weights; requesting the dot's
layout prevents the swap.

XLA splits a reduction of more than 32 elements along a dimension into two steps, unless the library
computes it: it reduces windows of 32 elements, then the results of the windows
(TreeReductionRewriter, for the accuracy of sums). XLA decides this before it assigns layouts, by
the layouts in the module. There a tensor has the layout that a custom call requests; after a
transpose, the operand's layout transposed; after an element-wise instruction, the layout of the
first operand; otherwise row-major, also for arguments of a call. The library computes reductions of
row-major tensors only. So requesting a layout may split a later reduction, such as the sum in a
softmax, and requesting row-major may prevent the split.

If the windows do not fill the dimension, the tensor is padded, which takes several times as long.

A use is an operand as one instruction reads it; the state of an instruction or a use is its layouts
and the kind of its copy (solution.features.propagation.states).

Source: programs compiled by jaxlib 0.10.2 (tests/collecting/test_library.py).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.layout.tensors import KEEPING
from solution.features.operations import NONE, find_operands
from solution.features.propagation.canonical import UNSET, make_row_major, reads_across
from solution.features.propagation.instructions import KEEPS, TRANSPOSES, Instructions
from solution.features.propagation.orders import compiled, row_major, transposed
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.states import COPY, MADE, list_windows

ELEMENTWISE = """
abs add ceil convert divide exponential exponential-minus-one floor log log-plus-one logistic
maximum minimum multiply negate power rsqrt sign sqrt subtract tanh
"""
# Opcodes that the library can compute (MAKING), and opcodes that XLA simplifies before it fuses
# (SHAPING), so that they do not count towards the size of a fusion.
MAKING = [OPCODE_IDS[name] for name in ELEMENTWISE.split()]
SHAPING = [OPCODE_IDS[name] for name in ("broadcast", "reshape", "bitcast")]
PRODUCTS = [OPCODE_IDS[name] for name in ("dot", "convolution")]
REDUCE, WINDOWS = OPCODE_IDS["reduce"], OPCODE_IDS["reduce-window"]
FILLED = [OPCODE_IDS[name] for name in ("broadcast", "constant")]
FLOAT32 = vocabulary.ELEMENT_TYPE.start + 11  # column of node_features: 1 if elements are float32
FEWEST = 4096  # instructions that read and write fewer elements are computed by XLA's loops
MOST = 96  # maximum size of a fusion: number of its instructions and of operands from outside
# What the library can do with an instruction. NOTHING: not compute it. JOINS: compute it inside a
# fusion. REDUCTION, POOLING: start a fusion with it. SPLIT: a reduction that XLA computes in two
# steps.
NOTHING, JOINS, REDUCTION, POOLING, SPLIT = range(5)
WINDOW = 32  # number of elements along a dimension in one window of a reduction in two steps
FULL = 0.25  # cost of a two-step reduction if its windows fill the dimension; 1 if it is padded
# Opcodes that propagate layouts in layout assignment, but not yet in the earlier pass in which XLA
# decides which reductions to split into two steps.
NOT_YET = """
all-reduce all-to-all collective-permute dynamic-slice dynamic-update-slice fft pad reduce-window
scatter select-and-scatter slice sort triangular-solve
"""
KEEPING_ALREADY = [OPCODE_IDS[name] for name in KEEPING.split() if name not in NOT_YET.split()]
NOBODY = -1  # stands for "no instruction", such as the owner of an instruction in no fusion


class Reads(NamedTuple):
    """A program, the library's ability to compute each of its instructions, and how much each
    instruction adds to the size of a fusion (at most MOST)."""

    # (instructions,) int8: what the library can do with an instruction, NOTHING ... POOLING
    ability: np.ndarray
    # (instructions,) int8: how much an instruction adds to the size of the fusion that contains it
    inside: np.ndarray
    # (instructions,) int8: how much it adds to the size of a fusion that reads it from outside
    outside: np.ndarray
    passed: np.ndarray  # (instructions,) bool, True for custom calls, which do not count as readers
    program: Instructions


def weigh_windows(ops: Instructions) -> np.ndarray:
    """Return the relative cost (instructions,) of reducing in two steps. A reduction along more
    than WINDOW elements costs FULL if all such sizes are multiples of WINDOW, else 1. All other
    instructions cost 0."""
    weights = np.zeros(ops.number)
    for op in np.flatnonzero((ops.opcodes == REDUCE) & ops.is_programs & (ops.main[:, 0] >= 0)):
        read = ops.read[ops.main[op, 0]]
        listed = ops.dimensions[op, : ops.rank[read] - ops.rank[op]]
        summed = ops.sizes[read, listed[listed >= 0]]
        long = summed[summed > WINDOW]
        if len(long):
            weights[op] = 1 if (long % WINDOW).any() else FULL
    return weights


def mark_split(ops: Instructions, numbered: Numbered, long: np.ndarray) -> np.ndarray:
    """Return a mask (configs, instructions): True for reductions that XLA computes in two steps.
    `long`: (instructions,) bool, True for the reductions that XLA may split."""
    split = np.zeros((len(numbered.numbers), ops.number), bool)
    if long.any():
        propagates = (ops.kind == KEEPS) & np.isin(ops.opcodes, KEEPING_ALREADY) & ops.is_programs
        propagates |= ops.kind == TRANSPOSES
        # `first`: the use that a long reduction reduces, or whose layout an instruction propagates
        first = np.where(long, ops.main[:, 0], np.where(propagates, _find_first(ops), NONE))
        # A called computation precedes its caller in `order`. So an operand that comes after its
        # reader is an argument of a call, and the custom call behind it does not count.
        position = np.argsort(ops.order)
        behind = np.where(position[ops.read] < position[ops.reader], ops.behind[ops.read], NONE)
        _mark_split(
            ops.kind, ops.rank, ops.dimensions, ops.read, ops.before, behind,
            ops.order, first, long, numbered.layouts[:, MADE], numbered.numbers, split,
        )  # fmt: skip
    return split


def _find_first(ops: Instructions) -> np.ndarray:
    """Return for each instruction the use (instructions,) of its first operand, or NONE. Edges do
    not say which operand is first: assume the operand of the result's rank with the lowest node
    number, and a broadcast or constant only if there is no other operand of this rank."""
    first = np.full(ops.number, NONE)
    rank = ops.rank[ops.read]
    is_filled = np.isin(ops.opcodes[ops.read], FILLED)
    order = np.lexsort((ops.node[ops.read], is_filled))[::-1]
    fits = order[rank[order] == ops.rank[ops.reader[order]]]
    first[ops.reader[fits]] = fits  # the last assignment wins: the best operand is last in `order`
    return first


def join_library(propagation: Propagation, numbered: Numbered) -> np.ndarray:
    """Return each instruction's kind of fusion (configs, instructions) int8. REDUCTION, POOLING:
    the library computes the instruction together with a reduction or a pooling. SPLIT: a reduction
    in two steps; instructions fused with it get POOLING. NOTHING: the library does not compute it.
    """
    ops, layouts = propagation.instructions, numbered.layouts
    joined = np.full((len(numbered.numbers), ops.number), NOTHING, np.int8)
    if propagation.backend.by_library:
        rank = np.append(ops.rank, np.zeros_like(ops.read))[numbered.point]
        row_major = (rank < 2) | (layouts[:, MADE] == make_row_major(rank))
        opcodes = ops.opcodes
        largest = _find_largest(ops)
        ability = _list_abilities(propagation.graph, ops, opcodes, largest)
        split = mark_split(ops, numbered, (ability == REDUCTION) & (weigh_windows(ops) > 0))
        reads = Reads(ability, *_count(ops, opcodes, largest), ~ops.is_programs, ops)
        asks = ~ops.is_programs[np.minimum(numbered.point, ops.number - 1)]
        apart = (layouts[:, COPY] > 0) | (asks & (layouts[:, MADE] >= 0))
        _join(reads, row_major, apart, split, numbered.numbers, joined)
    return joined


def find_slow_products(
    graph: Graph, ops: Instructions, point: np.ndarray, made: np.ndarray
) -> np.ndarray:
    """Return a mask (states,) of dots that the library does not compute: their left matrix is
    contracted along its first dimension. `point`: (states,) as in Numbered; `made`: (states,)
    packed layouts of results."""
    across = {node: reads_across(each) for node, each in find_operands(graph).letters.items()}
    is_dot = ops.is_programs & (ops.opcodes == OPCODE_IDS["dot"])
    node = np.append(np.where(is_dot, ops.node, NONE), NONE)
    slow = np.array([across.get(one, (False, False)) for one in node.tolist()])
    turned = np.append(ops.turned, UNSET)
    point = np.minimum(point, ops.number)
    is_turned = (turned[point] != UNSET) & (made == turned[point])
    return np.where(is_turned, slow[point, 1], slow[point, 0])


def _list_abilities(
    graph: Graph, ops: Instructions, opcodes: np.ndarray, largest: np.ndarray
) -> np.ndarray:
    """Return `Reads.ability` (instructions,) int8: NOTHING ... POOLING for each instruction.
    `largest`: result of _find_largest."""
    is_known = ops.is_programs & (np.append(graph.node_features[:, FLOAT32], 0)[ops.node] > 0)
    is_large = is_known & (np.maximum(ops.sizes.prod(axis=1), largest) >= FEWEST)
    ability = np.full(ops.number, NOTHING, np.int8)
    ability[is_large & np.isin(opcodes, [*MAKING, *PRODUCTS])] = JOINS
    ability[is_known & np.isin(opcodes, SHAPING)] = JOINS
    # A reduction of several tensors, such as a maximum with its position, is not supported.
    is_plain = is_large & (np.diff(ops.use_starts) <= 2)
    ability[is_plain & (opcodes == REDUCE)] = REDUCTION
    ability[is_plain & (opcodes == WINDOWS) & _find_tiling(graph, ops)] = POOLING
    ability[_find_extremes(opcodes, ops)] = JOINS
    # XLA replaces a division by a small broadcast tensor with a multiplication by its reciprocal.
    by = ops.read[opcodes[ops.reader] == OPCODE_IDS["divide"]]
    is_few = (opcodes[by] == OPCODE_IDS["broadcast"]) & (largest[by] < FEWEST)
    ability[by[is_few]] = NOTHING
    return ability


def _find_extremes(opcodes: np.ndarray, ops: Instructions) -> np.ndarray:
    """Return a mask (instructions,) of the maxima and minima that read a reduction: they probably
    compare its result with its initial value, and XLA removes this comparison."""
    reads_reduction = np.zeros(ops.number, bool)
    np.logical_or.at(reads_reduction, ops.reader, opcodes[ops.read] == REDUCE)
    return reads_reduction & np.isin(opcodes, [OPCODE_IDS["maximum"], OPCODE_IDS["minimum"]])


def _find_tiling(graph: Graph, ops: Instructions) -> np.ndarray:
    """Return a mask (instructions,) of poolings whose windows fill the operand without overlap."""
    read = np.append(ops.read, 0)[ops.main[:, 0]]
    return np.asarray((ops.sizes * list_windows(graph, ops) == ops.sizes[read]).all(axis=1))


def _find_largest(ops: Instructions) -> np.ndarray:
    """Return the number of elements (instructions,) of the largest operand of each instruction; 1
    if it has no operand."""
    found = np.ones(ops.number, np.int64)
    np.maximum.at(found, ops.reader, ops.sizes.prod(axis=1)[ops.read])
    return found


def _count(
    ops: Instructions, opcodes: np.ndarray, largest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `Reads.inside` and `Reads.outside`. Instructions that XLA simplifies before it fuses
    (reshapes, bitcasts, broadcasts of a scalar) add nothing inside, and scalars nothing outside."""
    elements = ops.sizes.prod(axis=1)
    inside = ~np.isin(opcodes, SHAPING)
    inside |= (opcodes == OPCODE_IDS["broadcast"]) & (largest > 1) & (largest < elements)
    return inside.astype(np.int8), (elements > 1).astype(np.int8)


@njit(cache=True, nogil=True)
def _join(reads, row_major, apart, split, numbers, joined):
    """Write into `joined` (configs, instructions) each instruction's kind of fusion. Fusions grow
    from reductions and poolings, beginning with the program's last one.

    `reads`: the program (Reads). `row_major`: (states,) True if the result is row-major. `apart`:
    (states,) True at a copy or a requested layout, where a fusion ends. `split`: (configs,
    instructions) True for reductions in two steps. `numbers`: (configs, points) states of
    instructions, then of uses.
    """
    count = reads.ability.size
    owner, outside = np.empty(count, np.int64), np.empty(count, np.int64)
    queue = np.empty(reads.program.read.size + 1, np.int64)
    for row in range(len(numbers)):
        owner[:], outside[:] = NOBODY, NOBODY
        for first in range(count - 1, -1, -1):
            begins = reads.ability[first] >= REDUCTION and owner[first] == NOBODY
            if begins and (reads.ability[first] == REDUCTION or row_major[numbers[row, first]]):
                _grow(reads, row_major, apart, numbers[row], owner, outside, queue, first)
        for op in range(count):
            joined[row, op] = NOTHING
            if split[row, op]:
                joined[row, op] = SPLIT
            elif owner[op] != NOBODY:
                joined[row, op] = POOLING if split[row, owner[op]] else reads.ability[owner[op]]


@compiled
def _grow(reads, row_major, apart, states, owner, outside, queue, first):
    """Grow the fusion at `first`: add operands breadth first, then the only reader of the result
    with its operands, and so on."""
    last, size = first, 0
    while last != NOBODY:
        size, end = _add(reads, owner, outside, queue, 0, size, first, last)
        tried = 0
        while tried < end and size < MOST:
            op = queue[tried]
            tried += 1
            able = _may_join(reads, row_major, apart, states, owner, op)
            if able and _is_read_inside(reads, apart, states, owner, first, op):
                size, end = _add(reads, owner, outside, queue, end, size, first, op)
        last = _find_reader(reads, apart, states, last)
        able = last != NOBODY and _may_join(reads, row_major, apart, states, owner, last)
        if size >= MOST or not able:
            last = NOBODY


@compiled
def _may_join(reads, row_major, apart, states, owner, op):
    """Return True if `op` may join a fusion: it is in no fusion yet, the library can compute it,
    its result is row-major, and its state is not `apart` (see _join)."""
    able = reads.ability[op] != NOTHING and owner[op] == NOBODY
    return able and row_major[states[op]] and not apart[states[op]]


@compiled
def _add(reads, owner, outside, queue, end, size, first, op):
    """Add `op` to the fusion that starts at `first`, and the operands of `op` to the queue. Return
    the new `size` of the fusion, which counts operands from outside, and the queue's new `end`."""
    owner[op] = first
    size += reads.inside[op]
    if outside[op] == first:
        size -= reads.outside[op]
    for use in range(reads.program.use_starts[op], reads.program.use_starts[op + 1]):
        operand = reads.program.read[use]
        if owner[operand] != first:
            queue[end] = operand
            end += 1
            if outside[operand] != first:
                outside[operand] = first
                size += reads.outside[operand]
    return size, end


@compiled
def _is_apart(reads, apart, states, use):
    """Return True if a use reads a copy, or if a custom call requests the operand's layout."""
    before, behind = reads.program.before[use], reads.program.behind[reads.program.read[use]]
    return (
        apart[states[reads.ability.size + use]]
        or (before != NOBODY and apart[states[before]])
        or (behind != NOBODY and apart[states[behind]])
    )


@compiled
def _is_read_inside(reads, apart, states, owner, first, op):
    """Return True if all readers of `op` are in the fusion and none reads it through a copy or a
    requested layout."""
    for k in range(reads.program.reader_starts[op], reads.program.reader_starts[op + 1]):
        use = reads.program.reading[k]
        reader = reads.program.reader[use]
        if reads.passed[reader]:
            continue
        if owner[reader] != first or _is_apart(reads, apart, states, use):
            return False
    return True


@compiled
def _find_reader(reads, apart, states, op):
    """Return the only reader of `op`; NOBODY if there are several, or if the reader reads `op`
    through a copy or a requested layout."""
    only = NOBODY
    for k in range(reads.program.reader_starts[op], reads.program.reader_starts[op + 1]):
        use = reads.program.reading[k]
        reader = reads.program.reader[use]
        if reads.passed[reader]:
            continue
        if _is_apart(reads, apart, states, use) or (only != NOBODY and only != reader):
            return NOBODY
        only = reader
    return only


@njit(cache=True, nogil=True)
def _mark_split(
    kind, rank, dimensions, read, before, behind, order, first, long, made, numbers, split
):  # fmt: skip
    """Mark in `split` (configs, instructions) the `long` reductions whose operand is not row-major.
    Each instruction, in `order`, takes the layout of its first operand: `first` is a use, or NONE.

    `behind`: (uses,) the custom call behind the operand, NONE for arguments of calls. `made`:
    (states,) the layouts that custom calls request, or UNSET. `numbers`: see _join.
    """
    plain = np.array([row_major(one) for one in rank])
    for row in range(len(numbers)):
        layouts = plain.copy()
        for op in order:
            use = first[op]
            if use == NONE:
                continue
            layout = layouts[read[use]]
            for call in (behind[use], before[use]):
                if call != NONE and made[numbers[row, call]] != UNSET:
                    layout = made[numbers[row, call]]
            if long[op]:
                split[row, op] = layout != plain[read[use]]
            elif kind[op] == TRANSPOSES:
                layouts[op] = transposed(layout, dimensions[op], rank[op])
            else:
                layouts[op] = layout
