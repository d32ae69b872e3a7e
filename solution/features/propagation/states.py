"""Number the states that instructions and copies take over all configurations (compiled).

An instruction's state is the layout of its result, the layouts in which it reads its two main
operands, and how it copies if it is a reshape or transpose. A use's state is the layout of the
tensor, the layout in which it is read, and how it is copied in between; all uses without a copy
share one state. Configurations agree in most of their states. "Place" means an instruction or a
use.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.features.propagation.copies import mark_copies
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
