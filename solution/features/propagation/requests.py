"""What is asked of one configuration's layouts so far, and how more is asked, compiled.

Source: LayoutAssignment::SetBufferLayout and SetOperandLayout of openxla/xla.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.features.propagation.orders import UNSET

MANDATORY, URGENT = 1, 2  # marks of what a buffer or a use is asked for
STACK, QUEUE_END, QUEUE_BEGIN, ADDED, STEPS = range(5)  # of State.ends


class Program(NamedTuple):
    """What the arrays of Instructions are to compiled code, and who reads what."""

    kind: np.ndarray
    rank: np.ndarray
    sizes: np.ndarray
    dimensions: np.ndarray
    fixed: np.ndarray
    turned: np.ndarray
    use_starts: np.ndarray
    read: np.ndarray
    reader: np.ndarray
    before: np.ndarray
    behind: np.ndarray
    order: np.ndarray
    reader_starts: np.ndarray  # (instructions + 1,) where the uses of an instance begin in ...
    reading: np.ndarray  # (uses,) those that read the first instance, the second, ...
    flags: np.ndarray  # (3,) bool, as the fields of Backend


class State(NamedTuple):
    """What is known of one configuration so far."""

    buffers: np.ndarray  # (instructions,) int64 layouts of what is made
    uses: np.ndarray  # (uses,) int64 layouts of what is read
    source: np.ndarray  # (uses,) int64 the buffer that is read
    marks: np.ndarray  # (instructions + uses,) int8
    waiting: np.ndarray  # (2, capacity) int64 a stack of urgent ones, a queue of others
    added: np.ndarray  # (capacity,) int64 constraints that are not in either yet
    ends: np.ndarray  # (5,) int64


@njit(cache=True, nogil=True)
def set_buffer(program, state, own, layout, mandatory, urgent):
    """Ask that `own` makes its tensor in a layout; what is tensor-like of rank 2 and more."""
    if program.rank[own] < 2:
        return
    mark, known = mandatory | urgent, state.buffers[own]
    if known == layout:
        changed = state.marks[own] | mark
        if changed != state.marks[own]:
            state.marks[own] = changed
            _add(state, own)
    elif known == UNSET or mandatory:
        state.buffers[own], state.marks[own] = layout, mark
        _add(state, own)


@njit(cache=True, nogil=True)
def set_use(program, state, use, layout, mandatory, urgent):
    """Ask that a tensor is read in a layout."""
    if program.rank[program.read[use]] < 2:
        return
    if state.uses[use] == UNSET or (mandatory and state.uses[use] != layout):
        state.uses[use] = layout
        state.marks[state.buffers.size + use] = mandatory | urgent
        _add(state, state.buffers.size + use)


@njit(cache=True, nogil=True)
def _add(state, item):
    if state.ends[ADDED] < state.added.size:
        state.added[state.ends[ADDED]] = item
        state.ends[ADDED] += 1
