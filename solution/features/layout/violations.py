"""How many nodes a layout configuration gives a layout that does not suit their shape.

Memory is read fastest along the largest dimension, so that should be the contiguous one.

Source: the violation ratio is a feature of a student report on the competition (rank 107 of 616),
section 5.2: "the fraction of times over all configurable nodes that the largest dimension size of
the tensor is not first in the major-to-minor ordering", whose lists begin with the contiguous one.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET

OUTPUT_MINOR = 0  # the slot of a layout that names the minor-most dimension of the output
UNSET = ("suits", "program")
BLOCK_ENTRIES = 1 << 22  # (configuration, node) entries that are counted at once


def violation_ratios(graph: Graph, unset: str = "suits") -> np.ndarray:
    """The share (distinct configs,) float64 of all configurable nodes that violate.

    A node violates where its largest output dimension is not the minor-most one of its layout.

    Args:
        unset: of a node whose layout is left to the compiler the report is silent: it "suits", or
            it has that of the "program" (UNSET).
    """
    layouts = graph.layouts
    features = graph.node_features[graph.configurable]
    sizes = features[:, vocabulary.SHAPE_DIMENSIONS]
    node, minor = layouts.node, layouts.layouts[:, OUTPUT_MINOR]  # (pairs,)
    is_given = minor != LAYOUT_UNSET
    if unset == "program":
        own = features[:, vocabulary.NODE_LAYOUT][:, OUTPUT_MINOR].astype(np.int64)
        minor, is_given = np.where(is_given, minor, own[node]), np.True_
    violates = is_given & (sizes[node, np.maximum(minor, 0)] < sizes[node].max(axis=1))
    step = max(1, BLOCK_ENTRIES // max(1, layouts.codes.shape[1]))
    ratios = [np.empty(0)]
    for first in range(0, len(layouts.codes), step):
        pairs = layouts.pairs(slice(first, first + step))  # (configs, configurable)
        ratios.append(violates[pairs].sum(axis=1) / max(1, len(sizes)))
    return np.concatenate(ratios)
