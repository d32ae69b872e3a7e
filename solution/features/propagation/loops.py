"""How many elements an instruction works on one after the other, where few are slow.

XLA gives reductions to a library (YNNPACK), and with each what lies around it element by element,
as far as all of it is row-major. Its kernels run along the contiguous dimension, and take several
times as long where that is short (`python -m tests.benchmarks.short_loops`). Where a configuration
asks for another layout, loops of XLA's own do what lies around, and do not care: a program may be
faster with copies. Small windows of a pooling are slow along the contiguous dimension as well.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.operands import NONE
from solution.features.propagation.instructions import REDUCES, Instructions
from solution.features.propagation.places import Places, lay_out, list_dimensions
from solution.features.propagation.states import FIRST, MADE

ENOUGH = 16  # elements one after the other, from which on a loop is no longer short
UNROLLED = 4  # elements of a window at most; larger ones are as slow in any layout
# What jaxlib 0.10.2 fuses with a reduction: the library does it as well.
ELEMENTWISE = """
abs add ceil convert divide exponential exponential-minus-one floor log log-plus-one logistic
maximum minimum multiply negate power rsqrt sign sqrt subtract tanh
"""
WORKS = [OPCODE_IDS[name] for name in (*ELEMENTWISE.split(), "broadcast")]
REDUCE, WINDOWS = OPCODE_IDS["reduce"], OPCODE_IDS["reduce-window"]
JOINS = [*WORKS, OPCODE_IDS["reshape"], REDUCE]
NOTHING = -1  # the opcode of what is no node's


@dataclass(frozen=True)
class Loops:
    """The loops of the instructions that are in some states; of uses, nothing."""

    sums: np.ndarray  # (states,) bool: of several elements it makes one
    contiguous: np.ndarray  # (states,) bool: the first of them lie beside each other
    in_library: np.ndarray  # (states,) bool: element by element, by the library
    run: np.ndarray  # (states,) float64 log2 elements one after the other; 0 of others
    short: np.ndarray  # (states,) float64 how short that is: 0 from ENOUGH on, near 1 for one
    works_on: np.ndarray  # (states,) int64 the instruction whose tensor that is


def find_loops(graph: Graph, own: Instructions, places: Places, layouts: np.ndarray) -> Loops:
    """The loops of the states at `places` with `layouts` (states, 4)."""
    opcodes = np.append(graph.node_opcodes.astype(np.int64), NOTHING)[own.node]
    opcodes[~own.is_programs] = NOTHING  # a custom call makes no tensor of its own
    at = np.where(places.is_copy, NOTHING, opcodes[places.instruction])
    windows = _list_windows(graph, own)[places.instruction]
    sums, contiguous, run = _follow_sums(own, places, layouts[:, FIRST], at, windows)
    row_major, along = _follow_elements(own, places.made, layouts[:, MADE])
    in_library = row_major & np.isin(at, WORKS) & _join_reductions(own, opcodes)[places.instruction]
    run = np.where(sums, run, np.where(in_library, along, 0))
    is_loop = in_library | (sums & ((at != WINDOWS) | (windows.prod(axis=1) <= UNROLLED)))
    short = np.where(is_loop, np.maximum(2.0**-run - 1 / ENOUGH, 0), 0)
    works_on = np.where(sums, places.read[:, 0], places.made)
    return Loops(sums, contiguous, in_library, run, short, works_on)


def _list_windows(graph: Graph, own: Instructions) -> np.ndarray:
    """The sizes (instructions, 6) of the windows that move over what is read; 1 where none do."""
    sizes = graph.node_features[:, vocabulary.WINDOW_SIZE]
    sizes = np.where((graph.node_opcodes == WINDOWS)[:, None], np.maximum(sizes, 1), 1)
    return np.asarray(np.vstack([sizes, np.ones((1, MAX_RANK))])[own.node])


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
    is_reduce = (at == REDUCE) & (own.kind[places.instruction] == REDUCES)
    summed = (dimensions[:, :, None] == listed[:, None]).any(axis=2) & is_reduce[:, None]
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


def _follow_elements(
    own: Instructions, made: np.ndarray, layouts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether a tensor (states,) is row-major, and log2 of its contiguous dimension."""
    rank, slots = own.rank[made], np.arange(MAX_RANK)
    dimensions = list_dimensions(layouts, rank)
    descending = np.where(slots < rank[:, None], rank[:, None] - 1 - slots, NONE)
    _, sizes = lay_out(layouts, own.sizes[made], rank)
    along = sizes[np.arange(len(made)), np.argmax(sizes > 0, axis=1)]
    return (layouts >= 0) & (dimensions == descending).all(axis=1), along


def _join_reductions(own: Instructions, opcodes: np.ndarray) -> np.ndarray:
    """Which instructions (instructions,) the library's work joins with a reduction."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    works = np.isin(opcodes, JOINS)
    kept = works[own.reader] & works[own.read]
    ends = own.reader[kept], own.read[kept]
    links = coo_matrix((np.ones(int(kept.sum())), ends), shape=(own.count, own.count))
    group = connected_components(links, directed=False)[1]
    return np.asarray(works & np.isin(group, group[opcodes == REDUCE]))
