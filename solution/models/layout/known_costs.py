"""Compute prior costs of states, which apply before anything is learned.

A copy costs about its bytes, more if it reads with a large stride. An instruction costs more if its
loops are short (solution.features.propagation.state_table), if it reduces in two steps or a library
leaves it out, and less if the library fuses it with a reduction
(solution.features.propagation.library). The unit is bytes, as a share of the bytes of all tensors.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.propagation.state_table import BYTES, StateTable

STRIDED = 0.3  # extra cost of a copied byte for each doubling of the read stride
ONCE = 0.5  # what a byte saves that a library fuses with a reduction
SHORT = 16.0  # cost of a byte in loops of one element, relative to a copied byte
SPLIT = 3.0  # cost of a byte reduced in two steps, relative to a copied byte
SLOW = 0.4  # cost of a multiplication that the library leaves out, relative to a copied byte
LEAST = 1e-3  # share of all tensors' bytes: the scale of a list with fewer copies
PARAMETER = vocabulary.OPCODE_IDS["parameter"]


@dataclass(frozen=True)
class KnownCosts:
    """Prior costs of each state (states,) float64, as shares of all tensors' bytes."""

    moved: np.ndarray  # bytes copied, without arguments
    copying: np.ndarray  # cost of these copies
    arguments: np.ndarray  # cost of copies of arguments, if they are not free
    slowed: np.ndarray  # extra cost of slow instructions
    spared: np.ndarray  # savings of fused instructions
    made: np.ndarray  # bytes that instructions read and write

    @property
    def extra(self) -> np.ndarray:
        """Cost of copies and slow instructions, without arguments."""
        return self.copying + self.slowed

    @property
    def total(self) -> np.ndarray:
        """Cost of each state, if copies of arguments are free."""
        return self.extra - self.spared


def weigh_states(graph: Graph, table: StateTable) -> KnownCosts:
    """Return the prior costs of a table's states."""
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
    """Return which states (states,) bool are instructions."""
    is_made = np.zeros(len(table.node), bool)
    is_made[table.numbers[:, : table.instructions].ravel()] = True
    return is_made


def find_arguments(graph: Graph, table: StateTable) -> np.ndarray:
    """Return which states (states,) bool belong to a parameter's tensor."""
    return list_opcodes(graph)[table.node] == PARAMETER


def list_opcodes(graph: Graph) -> np.ndarray:
    """Return the opcodes (nodes + 1,) int64; the last is for states without a node."""
    return np.append(graph.node_opcodes, vocabulary.VIRTUAL).astype(np.int64)
