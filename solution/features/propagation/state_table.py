"""Describe every state of an instruction or a use by the columns from which costs are learned.

A use is an operand as one instruction reads it. A configuration puts each instruction and each use
into one state: its layouts, and how its tensor is copied (solution.features.propagation.states).
The runtime of a configuration is close to the sum of the costs of its states. A state that all
configurations share does not change their order and is left out. The graph must be whole (not
pruned), because requested layouts propagate through all of it.

Some columns describe short loops. A library (solution.features.propagation.library) computes
reductions, and the instructions around each, along the contiguous dimension, which takes several
times as long if that dimension is short (solution/experiments/LOG.md, 2026-11-27: short loops). If
a configuration requests another layout, XLA's loops compute the instructions around the reduction
instead, at the same speed for any layout; so a program may be faster with copies. Pooling with
small windows is slow along the contiguous dimension as well.

A TPU pads tensors to register tiles (solution.features.propagation.register_tiles). Then the bytes
of a tensor depend on its layout, and TPU_FEATURES describe the padding. On a TPU, the bytes of a
tensor that is computed in a loop count once for each iteration.
"""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.column import Feature
from solution.features.operations import NONE, element_bytes, num_bytes, num_operations
from solution.features.propagation import library
from solution.features.propagation.backend import BACKENDS, Backend
from solution.features.propagation.canonical import make_row_major
from solution.features.propagation.inlining import count_runs
from solution.features.propagation.instructions import NO_OPCODE, Instructions
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.register_tiles import count_padded_bytes, share_matrix_unit
from solution.features.propagation.states import (
    COPY,
    FIRST,
    MADE,
    SECOND,
    Points,
    find_points,
    lay_out,
    list_dimensions,
    list_windows,
)
from solution.system.shelf import recall

# a loop over at least this many consecutive elements is not short
ENOUGH = 16
# maximum number of elements of a pooling's window for which the layout decides whether it is fast;
# poolings with larger windows are slow in any layout
UNROLLED = 4
BROADCAST = OPCODE_IDS["broadcast"]
LAST = 4  # number of a tensor's last dimensions that the table describes
LAYOUT_COLUMNS = {
    "known": ("flag", "the layout is known"),
    "row_major": ("flag", "it is row-major"),
    "last_contiguous": ("flag", "its last dimension is the contiguous one"),
    "as_row_major": ("log2 elements", "contiguous ones in row-major order"),
    "minor": ("log2 elements", "size of the contiguous dimension, those of size 1 left out"),
    "second_minor": ("log2 elements", "size of the next one"),
    **{f"stride_{k}": ("log2 elements", f"stride of dimension {k}, the last being 1")
       for k in range(1, LAST + 1)},
    **{f"size_{k}": ("log2 elements", f"size of dimension {k}, the last being 1")
       for k in range(1, LAST + 1)},
}  # fmt: skip
TENSORS = {"made": "the result", "first": "the main operand", "second": "the other operand"}
WAYS = {
    "blocks": "whose contiguous dimension stays",
    "swapped": "that swap the two minor dimensions",
    "scattered": "that reorder more",
}
KINDS = (
    "changes", "keeps", "concatenates", "reduces", "reshapes", "transposes", "broadcasts", "asks",
    "gives",
)  # fmt: skip
FEATURES = (
    *(Feature(f"state_{tensor}_{name}", unit, f"{which}: {meaning}")
      for tensor, which in TENSORS.items() for name, (unit, meaning) in LAYOUT_COLUMNS.items()),
    Feature("state_no_copy", "flag", "nothing is copied"),
    *(Feature(f"state_copy_{way}", "flag", f"a copy: {reason}") for way, reason in WAYS.items()),
    *(Feature(f"state_{kind}", "flag", f"the instruction, or a use's reader, {kind} layouts")
      for kind in KINDS),
    Feature("state_sums", "flag", "a reduction, or one of windows"),
    Feature("state_sums_contiguous", "flag", "it sums along the contiguous dimension"),
    Feature("state_in_reduction", "flag", "the library computes it together with a reduction"),
    Feature("state_in_pooling", "flag", "the library computes it together with a pooling"),
    Feature("state_split", "flag", "a reduction that is computed in two steps"),
    Feature("state_slow_product", "flag", "a product that the library does not compute"),
    Feature("state_slow_share", "log2 share", "its multiplications, over all tensors' bytes"),
    Feature("state_run", "log2 elements", "consecutive ones that the loop works on"),
    *(Feature(f"state_{tensor}_bytes", "log2 bytes", which) for tensor, which in TENSORS.items()),
    *(Feature(f"state_{tensor}_share", "log2 share", f"{TENSORS[tensor]}, of all tensors' bytes")
      for tensor in ("made", "first")),
    Feature("state_own", "flag", "its state if no layout is requested"),
)  # fmt: skip
# Columns that follow FEATURES if the backend pads tensors to register tiles.
TPU_FEATURES = (
    *(Feature(f"state_{tensor}_padding", "log2 ratio", f"{which}: bytes with padding over without")
      for tensor, which in TENSORS.items()),
    Feature("state_matrix_unit", "log2 share", "of the matrix unit's width that a product uses"),
)  # fmt: skip
# Weight of a result's padding if a configuration may set its layout; 1 otherwise. Chosen on the 99
# programs with a TPU's estimates (tau differs by less than 0.005 for weights 1 to 4).
WRITTEN = 3
# State tables of at least this many nodes x distinct configurations take seconds to minutes.
MANY = 1 << 20
# fields of Graph that a state table depends on; it also depends on the codebook
PROGRAM = ("node_features", "node_opcodes", "edges", "configurable", "summed")
# added to shares before their logarithm
LEAST_SHARE = 1e-9
# number of kinds of fusion: NOTHING ... SPLIT of solution.features.propagation.library
JOINED = library.SPLIT + 1
# StateTable.shares has NUM_SHARES columns: 1 / number of instructions, bytes moved / bytes of all
# tensors (column BYTES), and the square root of column BYTES.
NUM_SHARES, BYTES = 3, 1


def list_state_features(backend: str) -> tuple[Feature, ...]:
    """Return the columns of StateTable.features for a backend, a name in BACKENDS."""
    return (*FEATURES, *TPU_FEATURES) if BACKENDS[backend].device_layouts else FEATURES


@dataclass(frozen=True)
class Loops:
    """Properties of the loop of each instruction's state; the state of a use has no loop."""

    sums: np.ndarray  # (states,) bool: the loop reduces several elements to one
    contiguous: np.ndarray  # (states,) bool: the innermost elements summed are contiguous in memory
    # (states,) bool: a library fuses the instruction with a reduction, so the instruction's result
    # is not written to memory
    at_once: np.ndarray
    # (states,) float64: log2 of the number of consecutive elements that the inner loop works on; 0
    # if the loop is not modelled
    run: np.ndarray
    # (states,) float64: penalty of short loops, max(0, 1 / elements - 1 / ENOUGH)
    short: np.ndarray
    # (states,) int64: the instruction whose tensor the loop runs over: the operand that is summed,
    # or the result
    works_on: np.ndarray


def find_loops(
    graph: Graph, ops: Instructions, points: Points, layouts: np.ndarray, joins: np.ndarray
) -> Loops:
    """Return the loop of each state, given its packed `layouts` (states, 4) and the kind `joins`
    (states,) of its instruction's fusion (see join_library)."""
    opcodes = ops.opcodes.copy()
    opcodes[~ops.is_programs] = NO_OPCODE  # a custom call computes no tensor
    opcode = np.where(points.is_use, NO_OPCODE, opcodes[points.instruction])
    windows = list_windows(graph, ops)[points.instruction]
    sums, contiguous, run = _follow_sums(ops, points, layouts[:, FIRST], opcode, windows)
    is_joined = joins != library.NOTHING
    works = is_joined & np.isin(opcode, [*library.MAKING, BROADCAST])
    run = np.where(sums, run, np.where(works, _follow_elements(ops, points, layouts), 0))
    slow = np.where(opcode == library.REDUCE, is_joined, windows.prod(axis=1) <= UNROLLED)
    short = np.where(works | (sums & slow), np.maximum(2.0**-run - 1 / ENOUGH, 0), 0)
    works_on = np.where(sums, points.read[:, 0], points.made)
    at_once = (joins == library.REDUCTION) & np.isin(opcode, [*library.MAKING, *library.PRODUCTS])
    return Loops(sums, contiguous, at_once, run, short, works_on)


def _follow_sums(
    ops: Instructions, points: Points, layouts: np.ndarray, opcodes: np.ndarray, windows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays (states,): True for the loop of a reduction or pooling, True if the loop
    sums along contiguous memory, and log2 of the number of consecutive elements that it works on:
    the contiguous part of the summed dimensions or, if the innermost dimension is not summed, all
    dimensions inside of the summed ones."""
    read = points.read[:, 0]
    dimensions = list_dimensions(layouts, ops.rank[read])
    _, sizes = lay_out(layouts, ops.sizes[read], ops.rank[read])  # log2, minor to major
    listed = ops.dimensions[points.instruction]
    summed = (dimensions[:, :, None] == listed[:, None]).any(axis=2) & (opcodes == library.REDUCE)[
        :, None
    ]
    moved = np.log2(np.take_along_axis(windows, np.maximum(dimensions, 0), axis=1))
    summed = (summed | ((opcodes == library.WINDOWS)[:, None] & (moved > 0))) & (sizes > 0)
    first = np.argmax(sizes > 0, axis=1)
    rows = np.arange(len(layouts))
    contiguous = summed[rows, first]
    # inside = sum of the log sizes of dimensions that are more minor than every summed one
    # along = sum of the log sizes of summed dimensions that are more minor than every kept one
    inside = (sizes * (np.cumsum(summed, axis=1) == 0)).sum(axis=1)
    along = (sizes * (np.cumsum(~summed & (sizes > 0), axis=1) == 0)).sum(axis=1)
    along = np.where(opcodes == library.WINDOWS, moved[rows, first], along)
    return summed.any(axis=1), contiguous, np.where(contiguous, along, inside)


def _follow_elements(ops: Instructions, points: Points, layouts: np.ndarray) -> np.ndarray:
    """Return for each state log2 (states,) of the size of the result's contiguous dimension."""
    _, sizes = lay_out(layouts[:, MADE], ops.sizes[points.made], ops.rank[points.made])
    return np.asarray(sizes[np.arange(len(sizes)), np.argmax(sizes > 0, axis=1)])


@dataclass(frozen=True)
class StateTable:
    """The states (see Points) in which the distinct configurations of a graph differ, as arrays."""

    # (distinct configs, varying points) uint16, or int32 if there are more states: the state of
    # each point whose state varies
    numbers: np.ndarray
    instructions: int  # number of instructions among the points; uses are numbered after them
    layouts: np.ndarray  # (states, 4) int64, columns MADE, FIRST, SECOND, COPY of states.py
    tensors: np.ndarray  # (states, 3) int64, nodes of the tensor and of the two main operands
    node: np.ndarray  # (states,) int64, the node of the written or copied tensor; num_nodes: none
    reader: np.ndarray  # (states,) int64, node that reads the copy; `node` for an instruction
    features: np.ndarray  # (states, columns) float32, see list_state_features
    shares: np.ndarray  # (states, NUM_SHARES) float32: weights of each state's cost, see NUM_SHARES
    # (states,) float32: log2 of the elements between consecutive reads of a copy; 0 if nothing is
    # copied, and on a TPU, which moves whole register tiles
    strides: np.ndarray
    # Three arrays (states,) float32, divided by the bytes of all tensors. `short_loops`: bytes in
    # short loops, times Loops.short. `at_once`: bytes of results that are fused with a reduction.
    # `split`: bytes that are reduced in two steps, times weigh_windows.
    short_loops: np.ndarray
    at_once: np.ndarray
    split: np.ndarray
    # (states,) float32: multiplications of dots that the library does not compute, divided by the
    # bytes of all tensors
    slow_products: np.ndarray
    # (states, 3) float64: bytes of each of the three `tensors` in its layout, which is in column
    # MADE, FIRST or SECOND of `layouts`
    tensor_bytes: np.ndarray
    # (states,) float32: bytes of padding read and written, over the bytes of all tensors; padding
    # of results whose layout a configuration may set counts WRITTEN times
    padding: np.ndarray
    # (states,) float32: number of times that the tensor is computed or copied / bytes of all
    # tensors. The number is 1, except in loops on a TPU.
    runs: np.ndarray
    # (states,) bool: True for states of instructions, False for states of uses. States of custom
    # calls are True on a CPU, where the calls cut fusions. They are False on a TPU, which removes
    # the calls; also, which calls exist depends on the other configurations.
    is_made: np.ndarray
    pads: bool  # True if the backend pads tensors to register tiles, as the TPU backend does

    @property
    def is_copied(self) -> np.ndarray:
        """(states,) bool: an operand is copied, or a reshape or transpose moves data."""
        return np.asarray(self.layouts[:, COPY] > 0)


def _describe_states(graph: Graph, backend: Backend) -> StateTable:
    propagation = Propagation(graph, backend)
    ops = propagation.instructions
    plain = propagation.number_nothing()
    numbered = propagation.number()
    joined, plainly_joined = (library.join_library(propagation, each) for each in (numbered, plain))
    # key = JOINED * state + kind of fusion; keep the points whose key varies over configurations
    keys = numbered.numbers
    keys *= JOINED  # in place: for the largest graphs the array takes half a gigabyte
    keys[:, : ops.number] += joined
    varying = np.flatnonzero((keys != keys[:1]).any(axis=0))
    used, local = np.unique(keys[:, varying], return_inverse=True)
    point, layouts = numbered.point[used // JOINED], numbered.layouts[used // JOINED]
    points, joins = find_points(ops, point), used % JOINED
    small = np.uint16 if len(used) <= 1 << 16 else np.int32
    is_default = (layouts == plain.layouts[plain.numbers[0, point]]).all(axis=1)
    is_default &= points.is_use | (joins == plainly_joined[0, points.instruction])
    node = np.where(ops.node == NONE, graph.num_nodes, ops.node)
    size = np.append(num_bytes(graph), 0.0)[node]
    measured = _measure(propagation, points, layouts, plain)
    total = measured.total
    loops = find_loops(graph, ops, points, layouts, joins)
    # Without the library no loop counts as short: the penalty was measured on CPUs only.
    short = loops.short * backend.by_library
    is_settable = ~points.is_use & np.isin(ops.node[points.instruction], graph.configurable)
    is_split = joins == library.SPLIT
    split = np.where(is_split, library.weigh_windows(ops)[points.instruction], 0)
    slow = backend.by_library * library.find_slow_products(graph, ops, point, layouts[:, MADE])
    slow = slow * np.append(num_operations(graph), 0.0)[node[points.made]] / total
    return StateTable(
        numbers=local.reshape(len(keys), len(varying)).astype(small),
        instructions=int((varying < ops.number).sum()),
        layouts=layouts,
        tensors=node[np.column_stack([points.made, points.read])],
        node=node[points.made],
        reader=np.where(points.is_use, node[points.instruction], node[points.made]),
        features=_describe(ops, points, layouts, measured, is_default, loops, joins, slow),
        shares=_share(ops, points, layouts, measured),
        strides=(1 - measured.is_padded) * _find_strides(ops, points, layouts),
        short_loops=(short * size[loops.works_on] / total).astype(np.float32),
        at_once=(loops.at_once * size[points.made] / total).astype(np.float32),
        split=(split * size[points.read[:, 0]] / total).astype(np.float32),
        slow_products=slow.astype(np.float32),
        tensor_bytes=measured.padded,
        padding=_find_padding(points, layouts, measured, is_settable),
        runs=(measured.runs / total).astype(np.float32),
        is_made=~points.is_use & (ops.is_programs[points.instruction] | (not measured.is_padded)),
        pads=measured.is_padded,
    )


@cache
def state_tables(backend: str) -> PerGraph[StateTable]:
    """Return a function from a whole graph (not pruned) to its StateTable. In training, tables of
    large graphs are kept in files (solution.system.shelf), because each takes seconds, and all
    folds, seeds and cost models need the same tables."""
    return PerGraph(partial(_recall_states, backend=backend))


def _recall_states(graph: Graph, backend: str) -> StateTable:
    make = partial(_describe_states, graph, BACKENDS[backend])
    if graph.num_nodes * len(graph.layouts.codes) < MANY:
        return make()
    values = [getattr(graph, name) for name in PROGRAM]
    arrays = [*values, *graph.layouts.arrays().values()]
    return recall(StateTable, make, [backend, *(value for value in arrays if value is not None)])


def _describe(
    ops: Instructions,
    points: Points,
    layouts: np.ndarray,
    measured: "Measured",
    is_default: np.ndarray,
    loops: Loops,
    joins: np.ndarray,
    slow: np.ndarray,
) -> np.ndarray:
    """Return the columns of list_state_features (states, columns) float32."""
    # (states, 3): the instructions that compute the result and the two main operands
    tensors = np.column_stack([points.made, points.read])
    described = [
        describe_layouts(layouts[:, column], ops.sizes[instruction], ops.rank[instruction])
        for column, instruction in zip((MADE, FIRST, SECOND), tensors.T, strict=True)
    ]
    logs = np.log2(1 + measured.padded)
    padded = measured.runs[:, None] * measured.padded[:, :2]
    shares = np.log2(padded / measured.total + LEAST_SHARE)
    added = _describe_padding(ops, points, layouts, measured) if measured.is_padded else ()
    return np.column_stack(
        [*described, np.eye(1 + len(WAYS))[layouts[:, COPY]],
         np.eye(len(KINDS))[ops.kind[points.instruction]], loops.sums,
         loops.sums & loops.contiguous, joins == library.REDUCTION, joins == library.POOLING,
         joins == library.SPLIT, slow > 0, np.log2(slow + LEAST_SHARE),
         loops.run, logs, shares, is_default, *added]
    ).astype(np.float32)  # fmt: skip


def _share(
    ops: Instructions, points: Points, layouts: np.ndarray, measured: "Measured"
) -> np.ndarray:
    """Return `StateTable.shares` (states, NUM_SHARES) float32."""
    moved = measured.runs * _sum_moved(points, layouts, measured.padded) / measured.total
    return np.column_stack(
        [np.full(len(moved), 1 / ops.is_programs.sum()), moved, np.sqrt(moved)]
    ).astype(np.float32)


@dataclass(frozen=True)
class Measured:
    """The bytes of each state's tensors (result and two main operands; for a copy, the tensor
    before and after the copy), and the bytes of all tensors together."""

    plain: np.ndarray  # (states, 3) float64: bytes of result and both operands, without padding
    padded: np.ndarray  # (states, 3) float64: bytes with padding; as `plain` on a CPU
    # bytes of all tensors of the program, in the layouts that the compiler chooses if none is
    # requested, times how often each tensor is computed
    total: float
    is_padded: bool  # True if the backend pads tensors to register tiles
    runs: np.ndarray  # (states,) float64: how often a tensor is computed or copied; see count_runs


def _measure(
    propagation: Propagation, points: Points, layouts: np.ndarray, default: Numbered
) -> Measured:
    """Return the bytes of the states' tensors. `layouts`: (states, 4), columns MADE ... COPY;
    `default`: the states if no layouts are requested."""
    graph, ops = propagation.graph, propagation.instructions
    tensors = np.column_stack([points.made, points.read])  # (states, 3), as in _describe
    size = np.append(num_bytes(graph), 0.0)[ops.node]
    plain, all_bytes = size[tensors], size
    padded, runs = plain, np.ones(ops.number)
    if propagation.backend.device_layouts:
        # If an operand is missing, `tensors` repeats the result, so take the result's layout.
        is_result = (layouts[:, :COPY] < 0) & (tensors == points.made[:, None])
        known = np.where(is_result, layouts[:, [MADE]], layouts[:, :COPY])
        widths = np.append(element_bytes(graph), 1.0)[ops.node]
        padded = np.column_stack([
            count_padded_bytes(one, ops.sizes[made], ops.rank[made], widths[made])
            for one, made in zip(known.T, tensors.T, strict=True)
        ])  # fmt: skip
        all_bytes = count_padded_bytes(default.results[0], ops.sizes, ops.rank, widths)
        runs = np.append(count_runs(graph), 1.0)[ops.node]
    total = max(1.0, float((runs * all_bytes)[ops.is_programs].sum()))
    is_padded = propagation.backend.device_layouts
    return Measured(plain, padded, total, is_padded, runs[points.instruction])


def _sum_moved(points: Points, layouts: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the bytes (states,) that each state reads and writes, given the bytes `size` (states,
    3) of its tensors; for a copy, the mean of bytes read and bytes written."""
    made, first, second = size.T
    more = np.where(layouts[:, SECOND] >= 0, second, 0)
    return np.where(points.is_use, (made + first) / 2, made + first + more)


def _find_padding(
    points: Points, layouts: np.ndarray, measured: Measured, is_settable: np.ndarray
) -> np.ndarray:
    """Return `StateTable.padding` (states,) float32. `is_settable`: (states,) bool, True if a
    configuration may set the layout of the instruction's result."""
    padded, plain = (
        _sum_moved(points, layouts, size) for size in (measured.padded, measured.plain)
    )
    # Dots, convolutions and reshapes write their results to memory; most others are fused.
    written = is_settable * (measured.padded - measured.plain)[:, 0]
    padding = padded - plain + (WRITTEN - 1) * written
    return (measured.runs * padding / measured.total).astype(np.float32)


def _describe_padding(
    ops: Instructions, points: Points, layouts: np.ndarray, measured: Measured
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns TPU_FEATURES: padding (states, 3) of the result and the two main
    operands, and matrix unit (states,)."""
    tensors = np.column_stack([points.made, points.read])
    padding = np.log2(np.maximum(measured.padded, 1) / np.maximum(measured.plain, 1))
    # width = sum over result and operands of log2(share of the matrix unit's width in use)
    width = np.zeros(len(layouts))
    for column, instruction in enumerate(tensors.T):
        shares = share_matrix_unit(
            layouts[:, column], ops.sizes[instruction], ops.rank[instruction]
        )
        width += np.log2(shares)
    is_product = ~points.is_use & np.isin(ops.opcodes[points.instruction], library.PRODUCTS)
    return padding, np.where(is_product & ops.is_programs[points.instruction], width, 0)


def _find_strides(ops: Instructions, points: Points, layouts: np.ndarray) -> np.ndarray:
    """Return `StateTable.strides` (states,) float32: log2 distance between a copy's reads."""
    sizes, rank = ops.sizes[points.made], ops.rank[points.made]
    # distance between reads = stride, before the copy, of the dimension (`along`) that is
    # contiguous after it
    there, _ = lay_out(layouts[:, MADE], sizes, rank)
    _, written = lay_out(layouts[:, FIRST], sizes, rank)
    rows, slot = np.arange(len(layouts)), np.argmax(written > 0, axis=1)
    along = list_dimensions(layouts[:, FIRST], rank)[rows, slot]
    is_copied = points.is_use & (layouts[:, COPY] > 0) & (along >= 0)
    return np.where(is_copied, there[rows, np.maximum(along, 0)], 0).astype(np.float32)


def describe_layouts(layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the columns LAYOUT_COLUMNS (states, columns) of packed layouts (states,) of tensors
    with `sizes` (states, 6), 1 past the rank."""
    dimensions = list_dimensions(layouts, rank)
    is_there = dimensions >= 0
    rows = np.arange(len(layouts))
    strides, logs = lay_out(layouts, sizes, rank)
    alike = dimensions == list_dimensions(make_row_major(rank), rank)
    as_row_major = (logs * np.cumprod(alike & is_there, axis=1)).sum(axis=1)
    known = layouts >= 0
    # minor, second: positions of the two most minor dimensions whose size is above 1
    counted = logs > 0
    minor = np.argmax(counted, axis=1)
    counted[rows, minor] = False
    second = np.argmax(counted, axis=1)
    last = rank[:, None] - np.arange(1, LAST + 1)  # the last LAST dimensions, the last one first
    is_last = (last >= 0) & known[:, None]
    last = np.maximum(last, 0)
    return np.column_stack([
        known, known & alike.all(axis=1), dimensions[:, 0] == rank - 1, as_row_major,
        logs[rows, minor], np.where(counted.any(axis=1), logs[rows, second], 0),
        np.take_along_axis(strides, last, axis=1) * is_last,
        np.log2(np.take_along_axis(sizes, last, axis=1)) * is_last,
    ])  # fmt: skip
