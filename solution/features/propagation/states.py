"""Number the states that instructions and copies take over all configurations (compiled).

An instruction's state is the layout of its result, the layouts in which it reads its two main
operands, and how it copies if it is a reshape or transpose. A use's state is the layout of the
tensor, the layout in which it is read, and how it is copied in between; all uses without a copy
share one state. Configurations agree in most of their states. "Place" means an instruction or a
use.

Look up what each state belongs to, and how a layout lies in memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.operands import NONE
from solution.features.propagation.canonical import BITS, pack_rows
from solution.features.propagation.copies import mark_copies
from solution.features.propagation.instructions import Instructions
from solution.features.propagation.orders import ALIKE, UNSET
from solution.features.propagation.worklist import assign

MADE, FIRST, SECOND, COPY = range(4)  # columns of States.layouts
NO_STATE = -1


class States(NamedTuple):
    """Distinct states in the order in which they were found."""

    place: np.ndarray  # (room,) int64
    layouts: np.ndarray  # (room, 4) int64 columns MADE ... COPY
    following: np.ndarray  # (room,) int64, the next state of the same place
    first: np.ndarray  # (places,) int64, the first state of each place
    total: np.ndarray  # (1,) int64, the number of states


def make_states(places: int, room: int) -> States:
    """Return an empty table with capacity for `room` states."""
    return States(
        np.empty(room, np.int64), np.empty((room, 4), np.int64), np.empty(room, np.int64),
        np.full(places, NO_STATE), np.zeros(1, np.int64),
    )  # fmt: skip


def grow(states: States) -> States:
    """Return the same states with twice the capacity."""
    grown, count = make_states(len(states.first), 2 * len(states.place)), int(states.total[0])
    for new, old in zip(grown[:3], states[:3], strict=True):
        new[:count] = old[:count]
    grown.first[:], grown.total[:] = states.first, states.total
    return grown


@njit(cache=True, nogil=True)
def number_states(program, free, main, asked, packed, starts, codes, state, states, numbers):
    """Number the states of configurations until the capacity may not hold another one's.

    Args:
        program ... state: arguments of solution.features.propagation.copies.run.
        main: (instructions, 2), the field of Instructions.
        states: a States, written.
        numbers: (configs, instructions + uses) int32, written: the state of each place.

    Returns:
        how many configurations were numbered.
    """
    count, uses = program.kind.size, program.read.size
    given, marks = np.full(count, UNSET), np.empty(uses + count, np.int8)
    for row in range(len(codes)):
        if states.total[0] + count + uses > states.place.size:
            return row
        for own in range(count):
            position = asked[own, 0]
            if position >= 0:
                given[own] = packed[starts[position] + codes[row, position], asked[own, 1]]
        assign(program, given, state)
        mark_copies(program, free, state, marks)
        for own in range(count):
            first = state.uses[main[own, 0]] if main[own, 0] >= 0 else UNSET
            second = state.uses[main[own, 1]] if main[own, 1] >= 0 else UNSET
            found = _find(states, own, state.buffers[own], first, second, marks[uses + own])
            numbers[row, own] = found
        for use in range(uses):
            place, kind = count + use, marks[use]
            if kind == ALIKE:
                numbers[row, place] = _find(states, place, UNSET, UNSET, UNSET, kind)
            else:
                made, read = state.buffers[state.source[use]], state.uses[use]
                numbers[row, place] = _find(states, place, made, read, UNSET, kind)
    return len(codes)


@njit(cache=True, nogil=True)
def _find(states, place, made, first, second, copy):
    """Return the number of a state, adding it if it is new."""
    last, number = NO_STATE, states.first[place]
    while number != NO_STATE:
        known = states.layouts[number]
        same = known[MADE] == made and known[FIRST] == first
        if same and known[SECOND] == second and known[COPY] == copy:
            return number
        last, number = number, states.following[number]
    number = states.total[0]
    states.total[0] += 1
    states.place[number], states.following[number] = place, NO_STATE
    states.layouts[number, MADE], states.layouts[number, FIRST] = made, first
    states.layouts[number, SECOND], states.layouts[number, COPY] = second, copy
    if last == NO_STATE:
        states.first[place] = number
    else:
        states.following[last] = number
    return number


@dataclass(frozen=True)
class Places:
    """What the states belong to: instructions, or uses of their results."""

    is_copy: np.ndarray  # (states,) bool
    instruction: np.ndarray  # (states,) int64, the instruction itself, or the one that reads
    made: np.ndarray  # (states,) int64, the instruction whose tensor is computed or copied
    read: np.ndarray  # (states, 2) int64, main operands; of a use the copied tensor; else `made`


def find_places(own: Instructions, place: np.ndarray) -> Places:
    """Return what `place` (states,) stands for: instructions are numbered first, then uses."""
    is_copy = place >= own.count
    read = np.append(own.read, 0)  # so that index 0 exists
    use = np.where(is_copy, place - own.count, 0)
    instruction = np.where(is_copy, np.append(own.reader, 0)[use], place)
    made = np.where(is_copy, read[use], place)
    main = own.main[instruction]
    is_read = ~is_copy[:, None] & (main != NONE)
    return Places(is_copy, instruction, made, np.where(is_read, read[main], made[:, None]))


def list_dimensions(layouts: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Return the dimensions (states, 6) of layouts, minor to major; NONE past the rank."""
    slots = np.arange(MAX_RANK)
    dimensions = (layouts[:, None] >> (BITS * slots)) & (1 << BITS) - 1
    return np.where((slots < rank[:, None]) & (layouts[:, None] >= 0), dimensions, NONE)


def lay_out(
    layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute how tensors lie in memory, in log2 of elements.

    Returns:
        the stride of each dimension (states, 6), and the sizes from minor to major (states, 6);
        0 past the rank.
    """
    dimensions = list_dimensions(layouts, rank)
    is_there = dimensions >= 0
    logs = np.log2(np.take_along_axis(sizes, np.maximum(dimensions, 0), axis=1)) * is_there
    # stride of a dimension = product of the sizes of all more minor dimensions
    strides = np.zeros((len(layouts), MAX_RANK))
    row, slot = np.nonzero(is_there)
    strides[row, dimensions[row, slot]] = (np.cumsum(logs, axis=1) - logs)[row, slot]
    return strides, logs


def make_row_major(rank: np.ndarray) -> np.ndarray:
    """Return the layouts (states,) whose last dimension is contiguous."""
    slots = np.arange(MAX_RANK)
    used = slots < rank[:, None]
    return pack_rows(np.where(used, rank[:, None] - 1 - slots, 0))


def list_windows(graph: Graph, own: Instructions) -> np.ndarray:
    """Return the window sizes (instructions, 6) of poolings; 1 for other instructions."""
    sizes = graph.node_features[:, vocabulary.WINDOW_SIZE]
    is_pooling = graph.node_opcodes == OPCODE_IDS["reduce-window"]
    sizes = np.where(is_pooling[:, None], np.maximum(sizes, 1), 1)
    return np.asarray(np.vstack([sizes, np.ones((1, MAX_RANK))])[own.node])
