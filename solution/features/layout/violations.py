"""Count the nodes whose layout does not suit their shape.

Reading along the contiguous dimension is fastest, so the largest dimension should be contiguous.

Source: the violation ratio is a feature of a student report on the competition (rank 107 of 616),
section 5.2: "the fraction of times over all configurable nodes that the largest dimension size of
the tensor is not first in the major-to-minor ordering". The report's orderings begin with the
contiguous dimension.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET

OUTPUT_MINOR = 0  # the slot with the output's most minor dimension
UNSET = ("suits", "program")  # how to count a node without a layout; see violation_ratios
BLOCK_ENTRIES = 1 << 22  # maximum number of (configuration, node) entries in memory at once


def violation_ratios(graph: Graph, unset: str = "suits") -> np.ndarray:
    """Return the share (distinct configs,) float64 of configurable nodes whose largest output
    dimension is not the most minor one of their layout. `unset`: how to treat nodes to which the
    configuration gives no layout (the report does not say). "suits": they are no violations;
    "program": their layout in the program decides."""
    layouts = graph.layouts
    features = graph.node_features[graph.configurable]
    sizes = features[:, vocabulary.SHAPE_DIMENSIONS]
    node, minor = layouts.node, layouts.layouts[:, OUTPUT_MINOR]  # (pairs,) each
    is_given = minor != LAYOUT_UNSET
    if unset == "program":
        default = features[:, vocabulary.NODE_LAYOUT][:, OUTPUT_MINOR].astype(np.int64)
        minor, is_given = np.where(is_given, minor, default[node]), np.True_
    violates = is_given & (sizes[node, np.maximum(minor, 0)] < sizes[node].max(axis=1))
    step = max(1, BLOCK_ENTRIES // max(1, layouts.codes.shape[1]))
    ratios = [np.empty(0)]
    for first in range(0, len(layouts.codes), step):
        pairs = layouts.pairs(slice(first, first + step))  # (configs, configurable)
        ratios.append(violates[pairs].sum(axis=1) / max(1, len(sizes)))
    return np.concatenate(ratios)
