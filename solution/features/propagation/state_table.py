"""Describe every state of an instruction or a use as columns, from which costs are learned.

A configuration is one state for each instruction and each use
(solution.features.propagation.states). Its runtime is close to the sum of the states' costs. A
state that all configurations share does not change their order and is left out. The graph must be
whole, because a request reaches as far as it propagates.

Find how many elements a loop works on consecutively, where short runs are slow.

XLA's CPU backend gives reductions, and the instructions around each, to a library
(solution.features.propagation.library). The library's kernels run along the contiguous dimension
and take several times as long if that is short (`python -m benchmarks.short_loops`). If a
configuration requests another layout, XLA's loops compute the instructions around the reduction
instead, at the same speed for any layout; so a program may be faster with copies. Pooling with
small windows is slow along the contiguous dimension as well.
"""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.column import Feature
from solution.features.operands import NONE
from solution.features.propagation.backend import BACKENDS, Backend
from solution.features.propagation.instructions import NO_OPCODE, Instructions
from solution.features.propagation.library import (
    MAKING,
    NOTHING,
    POOLING,
    PRODUCTS,
    REDUCE,
    REDUCTION,
    SPLIT,
    WINDOWS,
    find_slow_products,
    join_library,
)
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.splitting import weigh_windows
from solution.features.propagation.states import (
    COPY,
    FIRST,
    MADE,
    SECOND,
    Places,
    find_places,
    lay_out,
    list_dimensions,
    list_windows,
    make_row_major,
)
from solution.features.work import num_bytes, num_operations

ENOUGH = 16  # consecutive elements from which on a loop is not short
UNROLLED = 4  # window size up to which the layout matters; larger windows are slow in any
BROADCAST = OPCODE_IDS["broadcast"]
LAST = 4  # dimensions described, last first
LAYOUT_COLUMNS = {
    "known": ("flag", "somebody asked for its layout, or nothing else is left"),
    "row_major": ("flag", "it is row-major"),
    "last_contiguous": ("flag", "its last dimension is the contiguous one"),
    "as_row_major": ("log2 elements", "that lie next to each other as in a row-major tensor"),
    "minor": ("log2 elements", "size of the contiguous dimension that is not of size 1"),
    "second_minor": ("log2 elements", "size of the next one"),
    **{f"stride_{k}": ("log2 elements", f"stride of dimension {k}, the last being 1")
       for k in range(1, LAST + 1)},
    **{f"size_{k}": ("log2 elements", f"size of dimension {k}, the last being 1")
       for k in range(1, LAST + 1)},
}  # fmt: skip
TENSORS = {"made": "what is made or there", "first": "what is read", "second": "the other operand"}
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
    *(Feature(f"state_{kind}", "flag", f"the instruction, or who reads, {kind} layouts")
      for kind in KINDS),
    Feature("state_sums", "flag", "a reduction, or one of windows"),
    Feature("state_sums_contiguous", "flag", "it sums along the contiguous dimension"),
    Feature("state_in_reduction", "flag", "the library does it together with a reduction"),
    Feature("state_in_pooling", "flag", "the library does it together with a pooling"),
    Feature("state_split", "flag", "a reduction that is taken in two steps"),
    Feature("state_slow_product", "flag", "a product that the library leaves out"),
    Feature("state_slow_share", "log2 share", "its multiplications, for all tensors' bytes"),
    Feature("state_run", "log2 elements", "that it works on one after the other"),
    *(Feature(f"state_{tensor}_bytes", "log2 bytes", which) for tensor, which in TENSORS.items()),
    *(Feature(f"state_{tensor}_share", "log2 share", f"{TENSORS[tensor]}, of all tensors' bytes")
      for tensor in ("made", "first")),
    Feature("state_own", "flag", "it is in this state where nothing is asked of the compiler"),
)  # fmt: skip
LEAST_SHARE = 1e-9
JOINED = SPLIT + 1  # number of fusion kinds
NUM_SHARES, BYTES = 3, 1  # columns: 1 / instructions, bytes written and read, their square root


@dataclass(frozen=True)
class Loops:
    """The loops of instructions in given layout assignments; uses have none."""

    sums: np.ndarray  # (states,) bool: several elements are reduced to one
    contiguous: np.ndarray  # (states,) bool: the innermost elements summed are contiguous in memory
    # (states,) bool: the library fuses it with a reduction, so it is never in memory.
    at_once: np.ndarray
    run: np.ndarray  # (states,) float64, log2 of consecutive elements; 0 for others
    short: np.ndarray  # (states,) float64, 0 for runs of ENOUGH or more, near 1 for a run of one
    works_on: np.ndarray  # (states,) int64, the instruction whose tensor the loop runs over


def find_loops(
    graph: Graph, own: Instructions, places: Places, layouts: np.ndarray, joins: np.ndarray
) -> Loops:
    """Return the loops of `places` (instructions or uses) under `layouts` (states, 4).

    Args:
        joins: (states,) what the library fuses with each; see features.propagation.library.
    """
    opcodes = own.opcodes.copy()
    opcodes[~own.is_programs] = NO_OPCODE  # a custom call computes no tensor
    at = np.where(places.is_copy, NO_OPCODE, opcodes[places.instruction])
    windows = list_windows(graph, own)[places.instruction]
    sums, contiguous, run = _follow_sums(own, places, layouts[:, FIRST], at, windows)
    is_joined = joins != NOTHING
    works = is_joined & np.isin(at, [*MAKING, BROADCAST])
    run = np.where(sums, run, np.where(works, _follow_elements(own, places, layouts), 0))
    slow = np.where(at == REDUCE, is_joined, windows.prod(axis=1) <= UNROLLED)
    short = np.where(works | (sums & slow), np.maximum(2.0**-run - 1 / ENOUGH, 0), 0)
    works_on = np.where(sums, places.read[:, 0], places.made)
    at_once = (joins == REDUCTION) & np.isin(at, [*MAKING, *PRODUCTS])
    return Loops(sums, contiguous, at_once, run, short, works_on)


def _follow_sums(
    own: Instructions, places: Places, layouts: np.ndarray, at: np.ndarray, windows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which reduce, if their innermost elements are contiguous, and the run length.

    The run is the contiguous part of the reduced dimensions. If they are not contiguous, it is what
    lies inside of them: that many sums are computed together.
    """
    read = places.read[:, 0]
    dimensions = list_dimensions(layouts, own.rank[read])
    _, sizes = lay_out(layouts, own.sizes[read], own.rank[read])  # minor to major
    listed = own.dimensions[places.instruction]
    summed = (dimensions[:, :, None] == listed[:, None]).any(axis=2) & (at == REDUCE)[:, None]
    moved = np.log2(np.take_along_axis(windows, np.maximum(dimensions, 0), axis=1))
    summed = (summed | ((at == WINDOWS)[:, None] & (moved > 0))) & (sizes > 0)
    first = np.argmax(sizes > 0, axis=1)
    rows = np.arange(len(layouts))
    contiguous = summed[rows, first]
    # Up to the first reduced dimension, and up to the first kept one.
    inside = (sizes * (np.cumsum(summed, axis=1) == 0)).sum(axis=1)
    along = (sizes * (np.cumsum(~summed & (sizes > 0), axis=1) == 0)).sum(axis=1)
    along = np.where(at == WINDOWS, moved[rows, first], along)
    return summed.any(axis=1), contiguous, np.where(contiguous, along, inside)


def _follow_elements(own: Instructions, places: Places, layouts: np.ndarray) -> np.ndarray:
    """Return log2 of the size of the result's contiguous dimension (states,)."""
    _, sizes = lay_out(layouts[:, MADE], own.sizes[places.made], own.rank[places.made])
    return np.asarray(sizes[np.arange(len(sizes)), np.argmax(sizes > 0, axis=1)])


@dataclass(frozen=True)
class StateTable:
    """The states that tell the distinct configurations of a graph apart."""

    numbers: np.ndarray  # (distinct configs, places) int32 rows of the other arrays
    instructions: int  # number of instructions; uses are numbered after them
    layouts: np.ndarray  # (states, 4) int64, columns of solution.features.propagation.states
    # (states, 3) int64, nodes of the written or copied tensor and of those read
    tensors: np.ndarray
    node: np.ndarray  # (states,) int64, the node of the written or copied tensor; num_nodes: none
    reader: np.ndarray  # (states,) int64, the node that reads the copy, else the same
    features: np.ndarray  # (states, len(FEATURES)) float32
    shares: np.ndarray  # (states, NUM_SHARES) float32, weights of each state in a sum
    # (states,) float32, log2 of the distance in elements between two consecutive reads of a copy,
    # which writes along its contiguous dimension; 0 without a copy.
    strides: np.ndarray
    # (states,) float32, the share of all bytes that runs through loops that are too short
    # (solution.features.propagation.state_table); 0 without a library.
    short_loops: np.ndarray
    # (states,) float32, the share of all bytes that the library fuses with a reduction
    # (solution.features.propagation.library).
    at_once: np.ndarray
    # (states,) float32, the share of all bytes that is reduced in two steps; less if the windows
    # fill the dimension (solution.features.propagation.splitting).
    split: np.ndarray
    # (states,) float32, multiplications of dots that the library leaves out, over all bytes
    # (solution.features.propagation.library).
    slow_products: np.ndarray

    @property
    def is_copied(self) -> np.ndarray:
        """(states,) bool, the state has a copy."""
        return np.asarray(self.layouts[:, COPY] > 0)


def _describe_states(graph: Graph, backend: Backend) -> StateTable:
    propagation = Propagation(graph, backend)
    own = propagation.instructions
    plain = propagation.number_nothing()
    numbered = propagation.number()
    joined, plainly_joined = (join_library(propagation, each) for each in (numbered, plain))
    keys = JOINED * numbered.numbers
    keys[:, : own.count] += joined
    varying = np.flatnonzero((keys != keys[:1]).any(axis=0))
    used, local = np.unique(keys[:, varying], return_inverse=True)
    place, layouts = numbered.place[used // JOINED], numbered.layouts[used // JOINED]
    places, joins = find_places(own, place), used % JOINED
    is_own = (layouts == plain.layouts[plain.numbers[0, place]]).all(axis=1)
    is_own &= places.is_copy | (joins == plainly_joined[0, places.instruction])
    node = np.where(own.node == NONE, graph.num_nodes, own.node)
    size = np.append(num_bytes(graph), 0.0)[node]
    total = max(1.0, float(size[own.is_programs].sum()))
    loops = find_loops(graph, own, places, layouts, joins)
    short = loops.short * backend.by_library  # measured for the CPU backend only
    is_split = joins == SPLIT
    split = np.where(is_split, weigh_windows(own)[places.instruction], 0)
    slow = backend.by_library * find_slow_products(graph, own, place, layouts[:, MADE])
    slow = slow * np.append(num_operations(graph), 0.0)[node[places.made]] / total
    return StateTable(
        numbers=local.reshape(len(keys), len(varying)).astype(np.int32),
        instructions=int((varying < own.count).sum()),
        layouts=layouts,
        tensors=node[np.column_stack([places.made, places.read])],
        node=node[places.made],
        reader=np.where(places.is_copy, node[places.instruction], node[places.made]),
        features=_describe(own, places, layouts, size, total, is_own, loops, joins, slow),
        shares=_share(own, places, layouts, size, total),
        strides=_find_strides(own, places, layouts),
        short_loops=(short * size[loops.works_on] / total).astype(np.float32),
        at_once=(loops.at_once * size[places.made] / total).astype(np.float32),
        split=(split * size[places.read[:, 0]] / total).astype(np.float32),
        slow_products=slow.astype(np.float32),
    )


@cache
def state_tables(backend: str) -> PerGraph[StateTable]:
    """Return the function from a whole graph to the states of its distinct configurations.

    Args:
        backend: a name in solution.features.propagation.backend.BACKENDS.
    """
    return PerGraph(partial(_describe_states, backend=BACKENDS[backend]))


def _describe(
    own: Instructions,
    places: Places,
    layouts: np.ndarray,
    size: np.ndarray,
    total: float,
    is_own: np.ndarray,
    loops: Loops,
    joins: np.ndarray,
    slow: np.ndarray,
) -> np.ndarray:
    """Return the columns FEATURES (states, columns) float32."""
    tensors = np.column_stack([places.made, places.read])  # (states, 3)
    described = [
        describe_layouts(layouts[:, column], own.sizes[instruction], own.rank[instruction])
        for column, instruction in zip((MADE, FIRST, SECOND), tensors.T, strict=True)
    ]
    logs = np.log2(1 + size[tensors])
    shares = np.log2(size[tensors[:, :2]] / total + LEAST_SHARE)
    return np.column_stack(
        [*described, np.eye(1 + len(WAYS))[layouts[:, COPY]],
         np.eye(len(KINDS))[own.kind[places.instruction]], loops.sums,
         loops.sums & loops.contiguous, joins == REDUCTION, joins == POOLING,
         joins == SPLIT, slow > 0, np.log2(slow + LEAST_SHARE),
         loops.run, logs, shares, is_own]
    ).astype(np.float32)  # fmt: skip


def _share(
    own: Instructions, places: Places, layouts: np.ndarray, size: np.ndarray, total: float
) -> np.ndarray:
    """Return the weights (states, NUM_SHARES) float32 of each state in a configuration's sums."""
    first, second = size[places.read].T
    more = np.where(layouts[:, SECOND] >= 0, second, 0)
    moved = np.where(places.is_copy, size[places.made], size[places.made] + first + more) / total
    return np.column_stack(
        [np.full(len(moved), 1 / own.is_programs.sum()), moved, np.sqrt(moved)]
    ).astype(np.float32)


def _find_strides(own: Instructions, places: Places, layouts: np.ndarray) -> np.ndarray:
    """Return the read distance of each copy (states,) float32; see StateTable.strides."""
    sizes, rank = own.sizes[places.made], own.rank[places.made]
    there, _ = lay_out(layouts[:, MADE], sizes, rank)
    _, written = lay_out(layouts[:, FIRST], sizes, rank)
    rows, slot = np.arange(len(layouts)), np.argmax(written > 0, axis=1)
    along = list_dimensions(layouts[:, FIRST], rank)[rows, slot]
    is_copied = places.is_copy & (layouts[:, COPY] > 0) & (along >= 0)
    return np.where(is_copied, there[rows, np.maximum(along, 0)], 0).astype(np.float32)


def describe_layouts(layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the columns LAYOUT_COLUMNS (states, columns) of tensors' layouts (states,).

    Args:
        sizes: (states, 6), 1 past the rank (states,).
    """
    dimensions = list_dimensions(layouts, rank)
    is_there = dimensions >= 0
    rows = np.arange(len(layouts))
    strides, logs = lay_out(layouts, sizes, rank)
    alike = dimensions == list_dimensions(make_row_major(rank), rank)
    as_row_major = (logs * np.cumprod(alike & is_there, axis=1)).sum(axis=1)
    known = layouts >= 0
    counted = logs > 0
    minor = np.argmax(counted, axis=1)
    counted[rows, minor] = False
    second = np.argmax(counted, axis=1)
    last = rank[:, None] - np.arange(1, LAST + 1)
    is_last = (last >= 0) & known[:, None]
    last = np.maximum(last, 0)
    return np.column_stack([
        known, known & alike.all(axis=1), dimensions[:, 0] == rank - 1, as_row_major,
        logs[rows, minor], np.where(counted.any(axis=1), logs[rows, second], 0),
        np.take_along_axis(strides, last, axis=1) * is_last,
        np.log2(np.take_along_axis(sizes, last, axis=1)) * is_last,
    ])  # fmt: skip
