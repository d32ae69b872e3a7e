"""Hold the layout constraints of one configuration, and add constraints (compiled).

Source: LayoutAssignment::SetBufferLayout and SetOperandLayout of openxla/xla.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.features.propagation.orders import UNSET

MANDATORY, URGENT = 1, 2  # flags of a constraint on a buffer or a use
STACK, QUEUE_END, QUEUE_BEGIN, ADDED, STEPS = range(5)  # indices into State.ends


class Program(NamedTuple):
    """The arrays of Instructions for compiled code, and the readers of each instance."""

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
    # (instructions + 1,), the start of each instance's readers in `reading`
    reader_starts: np.ndarray
    reading: np.ndarray  # (uses,), uses sorted by the instance they read
    flags: np.ndarray  # (3,) bool, the fields of Backend


class State(NamedTuple):
    """The constraints on one configuration so far."""

    buffers: np.ndarray  # (instructions,) int64, layouts of results
    uses: np.ndarray  # (uses,) int64, layouts in which operands are read
    source: np.ndarray  # (uses,) int64, the buffer that is read
    marks: np.ndarray  # (instructions + uses,) int8
    waiting: np.ndarray  # (2, capacity) int64, a stack of urgent constraints and a queue of others
    added: np.ndarray  # (capacity,) int64, new constraints that are in neither yet
    ends: np.ndarray  # (5,) int64


@njit(cache=True, nogil=True)
def set_buffer(program, state, own, layout, mandatory, urgent):
    """Constrain the layout of the result of `own`; ignored below rank 2."""
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
    """Constrain the layout in which a use reads its operand."""
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
