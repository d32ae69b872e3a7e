"""Find how many elements a loop works on consecutively, where short runs are slow.

XLA's CPU backend gives reductions, and the instructions around each, to a library
(solution.features.propagation.library). The library's kernels run along the contiguous dimension
and take several times as long if that is short (`python -m benchmarks.short_loops`). If a
configuration requests another layout, XLA's loops compute the instructions around the reduction
instead, at the same speed for any layout; so a program may be faster with copies. Pooling with
small windows is slow along the contiguous dimension as well.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.propagation.instructions import NO_OPCODE, Instructions
from solution.features.propagation.library import (
    MAKING,
    NOTHING,
    PRODUCTS,
    REDUCE,
    REDUCTION,
    WINDOWS,
)
from solution.features.propagation.places import Places, lay_out, list_dimensions, list_windows
from solution.features.propagation.states import FIRST, MADE

ENOUGH = 16  # consecutive elements from which on a loop is not short
UNROLLED = 4  # window size up to which the layout matters; larger windows are slow in any
BROADCAST = OPCODE_IDS["broadcast"]


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
