"""How many nodes a layout configuration gives a layout that does not suit their shape.

Memory is read fastest along the largest dimension, so that should be the contiguous one.

Source: the violation ratio is a feature of a student report on the competition (rank 107 of 616).
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET

OUTPUT_MINOR = 0  # the slot of a layout that names the minor-most dimension of the output
BLOCK_ENTRIES = 1 << 22  # (configuration, node) entries that are counted at once


def violation_ratios(graph: Graph) -> np.ndarray:
    """The share (distinct configs,) float64 of violating nodes in each distinct configuration.

    A node violates where its largest output dimension is not the minor-most one of the layout that
    it is given. Nodes whose layout is left to the compiler do not count; without others it is 0.
    """
    layouts = graph.layouts
    sizes = graph.node_features[graph.configurable][:, vocabulary.SHAPE_DIMENSIONS]
    minor = layouts.layouts[:, OUTPUT_MINOR]  # (pairs,)
    is_given = minor != LAYOUT_UNSET
    node = layouts.node
    violates = is_given & (sizes[node, np.maximum(minor, 0)] < sizes[node].max(axis=1))
    step = max(1, BLOCK_ENTRIES // max(1, layouts.codes.shape[1]))
    ratios = [np.empty(0)]
    for first in range(0, len(layouts.codes), step):
        pairs = layouts.pairs(slice(first, first + step))  # (configs, configurable)
        given = is_given[pairs].sum(axis=1)
        ratios.append(violates[pairs].sum(axis=1) / np.maximum(given, 1))
    return np.concatenate(ratios)
