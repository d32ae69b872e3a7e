"""How many elements an instruction works on one after the other, where few are slow.

XLA gives reductions to a library, and with each what lies around it
(solution.features.propagation.library). Its kernels run along the contiguous dimension, and take
several times as long where that is short (`python -m benchmarks.short_loops`). Where a
configuration asks for another layout, loops of XLA's own do what lies around, and do not care: a
program may be faster with copies. Small windows of a pooling are slow along the contiguous
dimension as well.
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

ENOUGH = 16  # elements one after the other, from which on a loop is no longer short
UNROLLED = 4  # elements of a window at most; larger ones are as slow in any layout
BROADCAST = OPCODE_IDS["broadcast"]


@dataclass(frozen=True)
class Loops:
    """The loops of the instructions that are in some states; of uses, nothing."""

    sums: np.ndarray  # (states,) bool: of several elements it makes one
    contiguous: np.ndarray  # (states,) bool: the first of them lie beside each other
    # (states,) bool: the library makes it at once with a reduction, so it is never in memory.
    at_once: np.ndarray
    run: np.ndarray  # (states,) float64 log2 elements one after the other; 0 of others
    short: np.ndarray  # (states,) float64 how short that is: 0 from ENOUGH on, near 1 for one
    works_on: np.ndarray  # (states,) int64 the instruction whose tensor that is


def find_loops(
    graph: Graph, own: Instructions, places: Places, layouts: np.ndarray, joins: np.ndarray
) -> Loops:
    """The loops of the states at `places` with `layouts` (states, 4).

    Args:
        joins: (states,) what it has joined in the library, see features.propagation.library.
    """
    opcodes = own.opcodes.copy()
    opcodes[~own.is_programs] = NO_OPCODE  # a custom call makes no tensor of its own
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
    """What makes one element of several, whether they lie beside each other, and the run.

    A run is what is summed, as far as it is contiguous, or else what lies inside: so many sums are
    taken at once.
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
    # Up to the first dimension that is summed, and up to the first that is not.
    inside = (sizes * (np.cumsum(summed, axis=1) == 0)).sum(axis=1)
    along = (sizes * (np.cumsum(~summed & (sizes > 0), axis=1) == 0)).sum(axis=1)
    along = np.where(at == WINDOWS, moved[rows, first], along)
    return summed.any(axis=1), contiguous, np.where(contiguous, along, inside)


def _follow_elements(own: Instructions, places: Places, layouts: np.ndarray) -> np.ndarray:
    """Log2 of the contiguous dimension (states,) of what is made."""
    _, sizes = lay_out(layouts[:, MADE], own.sizes[places.made], own.rank[places.made])
    return np.asarray(sizes[np.arange(len(sizes)), np.argmax(sizes > 0, axis=1)])
