"""Nodes of importance: those on both sides of an edge where the layout may change.

Where a tensor is ordered one way by who makes it and another way by who reads it, the compiler has
to copy it in between (solution.features.layout.conflicts). The node that makes the tensor and those
whose layouts order it are the sides.

Source: the future work of a student report on the competition (rank 107 of 616), whose subsample is
these and the configurable nodes. The report means the layouts of a configuration; a net is shown
several at a time, so here a node counts that is a side in any configuration there could be.
"""

import numpy as np

from solution.domain.graph import Graph
from solution.features.layout.conflicts import find_constraints


def find_important(graph: Graph) -> np.ndarray:
    """The sides (nodes,) bool of every tensor of a layout graph on which two layouts may disagree.

    Configurable nodes that no other one disagrees with are not among them.
    """
    constraints = find_constraints(graph)
    is_side = np.zeros(graph.num_nodes, bool)
    is_side[constraints.nodes] = True
    is_side[graph.configurable[constraints.configurable]] = True
    return is_side
