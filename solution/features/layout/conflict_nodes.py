"""Nodes of importance: those on both sides of an edge where the layout changes.

Where a tensor is ordered one way by who makes it and another way by who reads it, the compiler has
to copy it in between (solution.features.layout.conflicts). The node that makes the tensor and those
whose layouts order it are the sides.

Source: the future work of a student report on the competition (rank 107 of 616).
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from solution.domain.graph import Graph
from solution.features.layout.conflicts import FEATURES, Constraints, find_constraints

ORDER_DIFFERS = FEATURES.index("order_differs")


@dataclass(frozen=True)
class Importance:
    """Which nodes are sides of which tensors."""

    constraints: Constraints
    sides: csr_array  # (tensors, nodes) float32, 1 for a side

    @property
    def nodes(self) -> np.ndarray:
        """The nodes (nodes,) bool that are of importance in some configuration there could be."""
        return np.asarray(self.sides.sum(axis=0) > 0)

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Which nodes (configs, nodes) bool are, for `codes` (configs, configurable)."""
        differs = self.constraints.describe(codes)[:, :, ORDER_DIFFERS].astype(np.float32)
        return np.asarray(differs @ self.sides > 0)


def find_importance(graph: Graph) -> Importance:
    """The sides of every tensor of a layout graph on which two layouts may disagree."""
    constraints = find_constraints(graph)
    counts = np.diff(np.append(constraints.starts, len(constraints.configurable)))
    tensor = np.arange(len(constraints.nodes))
    rows = np.concatenate([tensor, np.repeat(tensor, counts)])
    columns = np.concatenate([constraints.nodes, graph.configurable[constraints.configurable]])
    ones = np.ones(len(rows), np.float32)
    sides = csr_array((ones, (rows, columns)), shape=(len(tensor), graph.num_nodes))
    return Importance(constraints, sides)
