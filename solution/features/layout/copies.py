"""Count the copies that a layout configuration makes the compiler insert, and their bytes.

The compiler copies a tensor that its producer and its consumers want in different layouts
(solution.features.layout.conflicts).
"""

import numpy as np

from solution.domain.graph import Graph
from solution.features.column import Feature
from solution.features.layout import conflicts
from solution.features.work import num_bytes

BLOCK_ENTRIES = 1 << 22  # (configuration, tensor) entries in one block

FEATURES = (
    Feature("copies_constrained", "share", "tensors between configurable nodes that get any order"),
    Feature("copies_minor", "share", "those whose orders have different contiguous dimensions"),
    Feature("copies_order", "share", "those that differ in one of the two minor dimensions"),
    Feature("copies_count", "log1p count", "copies that the configuration asks for"),
    Feature("copies_constrained_bytes", "share", "copies_constrained by bytes"),
    Feature("copies_minor_bytes", "share", "copies_minor by bytes: what the copies move"),
    Feature("copies_order_bytes", "share", "copies_order by bytes"),
    Feature("copies_bytes", "log1p bytes", "bytes that the copies move"),
)


def count_copies(graph: Graph) -> np.ndarray:
    """Return the columns FEATURES: (distinct configs, len(FEATURES)) float64."""
    constraints, codes = conflicts.find_constraints(graph), graph.layouts.codes
    if len(constraints.nodes) == 0:
        return np.zeros((len(codes), len(FEATURES)))
    size = num_bytes(graph)[constraints.nodes]
    shares = np.stack([np.full(len(size), 1 / len(size)), size / size.sum()], axis=1)
    step = max(1, BLOCK_ENTRIES // max(len(constraints.configurable), 1))
    blocks = []
    for first in range(0, len(codes), step):
        found = constraints.describe(codes[first : first + step]).astype(np.float32)
        summed = np.einsum("ctf,tw->cwf", found, shares)  # (configs, weights, features)
        number = np.log1p(summed[:, 0, 2] * len(size))
        moved = np.log1p(summed[:, 1, 2] * size.sum())
        blocks.append(np.column_stack([summed[:, 0], number, summed[:, 1], moved]))
    return np.concatenate(blocks)
