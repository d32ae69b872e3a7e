"""What stands at the places whose states are described, and how a layout lies in memory."""

from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.operands import NONE
from solution.features.propagation.beforehand import BITS, pack_rows
from solution.features.propagation.instructions import Instructions


@dataclass(frozen=True)
class Places:
    """Where states are: instructions, or uses of them."""

    is_copy: np.ndarray  # (states,) bool
    instruction: np.ndarray  # (states,) int64 that is in the state, or reads
    made: np.ndarray  # (states,) int64 the instruction whose tensor is made or copied
    read: np.ndarray  # (states, 2) int64 its main operands; of a use what is copied; or `made`


def find_places(own: Instructions, place: np.ndarray) -> Places:
    """What is at each place (states,): instructions first, then uses."""
    is_copy = place >= own.count
    read = np.append(own.read, 0)  # so that there is one
    use = np.where(is_copy, place - own.count, 0)
    instruction = np.where(is_copy, np.append(own.reader, 0)[use], place)
    made = np.where(is_copy, read[use], place)
    main = own.main[instruction]
    is_read = ~is_copy[:, None] & (main != NONE)
    return Places(is_copy, instruction, made, np.where(is_read, read[main], made[:, None]))


def list_dimensions(layouts: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The dimensions (states, 6) of layouts (states,), minor to major; NONE past the rank."""
    slots = np.arange(MAX_RANK)
    dimensions = (layouts[:, None] >> (BITS * slots)) & (1 << BITS) - 1
    return np.where((slots < rank[:, None]) & (layouts[:, None] >= 0), dimensions, NONE)


def lay_out(
    layouts: np.ndarray, sizes: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the dimensions of tensors lie in memory, in log2 elements.

    Returns:
        the stride of each dimension (states, 6), and the size of each from minor to major
        (states, 6); 0 where there is none.
    """
    dimensions = list_dimensions(layouts, rank)
    is_there = dimensions >= 0
    logs = np.log2(np.take_along_axis(sizes, np.maximum(dimensions, 0), axis=1)) * is_there
    # What lies inside a dimension is the product of the more minor ones.
    strides = np.zeros((len(layouts), MAX_RANK))
    row, slot = np.nonzero(is_there)
    strides[row, dimensions[row, slot]] = (np.cumsum(logs, axis=1) - logs)[row, slot]
    return strides, logs


def make_row_major(rank: np.ndarray) -> np.ndarray:
    """The layouts (states,) whose last dimension is the contiguous one."""
    slots = np.arange(MAX_RANK)
    used = slots < rank[:, None]
    return pack_rows(np.where(used, rank[:, None] - 1 - slots, 0))


def list_windows(graph: Graph, own: Instructions) -> np.ndarray:
    """The sizes (instructions, 6) of the windows of a pooling; 1 where none move."""
    sizes = graph.node_features[:, vocabulary.WINDOW_SIZE]
    is_pooling = graph.node_opcodes == OPCODE_IDS["reduce-window"]
    sizes = np.where(is_pooling[:, None], np.maximum(sizes, 1), 1)
    return np.asarray(np.vstack([sizes, np.ones((1, MAX_RANK))])[own.node])
