"""Measure how common each node's layout is among the graph's candidates.

A search visits good layouts repeatedly. In collections of the default search a common layout is
therefore likely fast; in random collections frequency says nothing. The features use only the
candidates, which are known before anything is timed, and change with them. If a graph has a
reference batch (Graph.listed), only its configurations are counted; a layout that occurs in none of
them gets the count 1.
"""

import numpy as np

from solution.domain.codebook import Codebook, share_of_pairs
from solution.features.column import Feature

BLOCK_ENTRIES = 1 << 22  # maximum number of (configuration, node) entries in memory at once

FEATURES = (
    Feature(
        "frequency_mean", "share", "candidates that give a node the same layout, mean over nodes"
    ),
    Feature("frequency_log", "log share", "the same as a likelihood: the mean of its logarithm"),
    Feature("frequency_least", "share", "the node whose layout is rarest"),
    Feature("frequency_top", "share", "nodes that have their most common layout"),
)


def measure_frequency(pairs: Codebook, listed: np.ndarray | None = None) -> np.ndarray:
    """Return the columns FEATURES (distinct configs, columns) float64. Layouts are counted in the
    configurations that `listed` (configs,) bool marks; None: in all."""
    configs, nodes = pairs.codes.shape
    if nodes == 0:
        return np.zeros((configs, len(FEATURES)))
    share = share_of_pairs(pairs, listed)
    if listed is not None:
        share = np.maximum(share, 1 / listed.sum())
    most = np.maximum.reduceat(share, pairs.starts[:-1])  # (nodes,): largest share of a layout
    step = max(1, BLOCK_ENTRIES // nodes)
    blocks = []
    for first in range(0, configs, step):
        used = share[pairs.pairs(slice(first, first + step))]  # (configs, nodes): shares of layouts
        columns = [used.mean(1), np.log(used).mean(1), used.min(1), (used == most).mean(1)]
        blocks.append(np.stack(columns, axis=1))
    return np.concatenate(blocks)
