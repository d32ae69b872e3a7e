"""Look up what each state belongs to, and how a layout lies in memory."""

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
