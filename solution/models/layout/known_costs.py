"""What is known of the costs of states before anything is learned.

A copy costs about what it moves, more where it reads far apart; an instruction costs more where its
loops are short (solution.features.propagation.loops), where it reduces in two steps or a library
leaves it out, and less where that does it at once with a reduction
(solution.features.propagation.library). In bytes, as shares of those of all tensors.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.propagation.state_table import BYTES, StateTable

STRIDED = 0.3  # how much more a copied byte costs for each doubling of how far apart it is read
ONCE = 0.5  # what a byte spares that a library makes at once with a reduction
SHORT = 16.0  # what a byte costs in loops of one element, beside one that is copied
SPLIT = 3.0  # what a byte costs that is reduced in two steps, beside one that is copied
SLOW = 0.4  # what a multiplication costs that the library leaves out, beside a byte that is copied
LEAST = 1e-3  # of all tensors' bytes: the scale of a list that copies less
PARAMETER = vocabulary.OPCODE_IDS["parameter"]


@dataclass(frozen=True)
class KnownCosts:
    """What is known of each state (states,) float64, in shares of all tensors' bytes."""

    moved: np.ndarray  # what is copied, but for arguments
    copying: np.ndarray  # what that costs
    arguments: np.ndarray  # what copies of arguments would cost, if they are not free
    slowed: np.ndarray  # what is slow costs more
    spared: np.ndarray  # what is made at once costs less
    made: np.ndarray  # what instructions read and make

    @property
    def extra(self) -> np.ndarray:
        """What copies and what is slow cost, but for arguments."""
        return self.copying + self.slowed

    @property
    def total(self) -> np.ndarray:
        """What a state costs, if copies of arguments are free."""
        return self.extra - self.spared


def weigh_states(graph: Graph, table: StateTable) -> KnownCosts:
    """What is known of the costs of a table's states."""
    is_made, is_argument = find_made(table).astype(np.float64), find_arguments(graph, table)
    moved = table.is_copied * table.shares[:, BYTES].astype(np.float64)
    copying = (1 + STRIDED * table.strides) * moved
    slowed = SHORT * table.short_loops + SPLIT * table.split + SLOW * table.slow_products
    return KnownCosts(
        moved=np.where(is_argument, 0, moved),
        copying=np.where(is_argument, 0, copying),
        arguments=np.where(is_argument, copying, 0),
        slowed=is_made * slowed,
        spared=is_made * ONCE * table.at_once,
        made=is_made * table.shares[:, BYTES],
    )


def find_made(table: StateTable) -> np.ndarray:
    """Which states (states,) bool are instructions'."""
    is_made = np.zeros(len(table.node), bool)
    is_made[table.numbers[:, : table.instructions].ravel()] = True
    return is_made


def find_arguments(graph: Graph, table: StateTable) -> np.ndarray:
    """Which states (states,) bool are of a parameter's tensor."""
    return list_opcodes(graph)[table.node] == PARAMETER


def list_opcodes(graph: Graph) -> np.ndarray:
    """The opcodes (nodes + 1,) int64; the last is that of what is no node's."""
    return np.append(graph.node_opcodes, vocabulary.VIRTUAL).astype(np.int64)
