"""A topological order that does not depend on how nodes are numbered.

Nodes are sorted by their depth on the longest path; those of one depth by their colour: a hash of
what a node is, refined by the hashes of its neighbours until no two more nodes are told apart
(Weisfeiler and Leman). Only nodes that no such round tells apart keep the order of their numbers.
"""

import numpy as np

from solution.domain.mixing import GOLDEN, mix
from solution.domain.neighbours import find_depths
from solution.system.errors import InputError

MAX_ROUNDS = 48


def canonical_order(name: str, content: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The nodes (nodes,) int64 in that order.

    Args:
        name: of the graph, for messages.
        content: (nodes, columns) float64, what a node is.
        edges: (edges, 2) int64, rows [consumer, producer].

    Raises InputError where the edges form a cycle.
    """
    depths = find_depths(edges, len(content))
    if (depths < 0).any():
        stuck = np.flatnonzero(depths < 0)
        raise InputError(
            f"{name}: the graph has a cycle; {len(stuck)} nodes wait for each other, among them "
            f"{', '.join(map(str, stuck[:5]))}. A program to be placed has none."
        )
    return np.lexsort((_colour(content, edges), depths))


def _colour(content: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Hashes (nodes,) uint64."""
    colours = np.zeros(len(content), np.uint64)
    for column in content.T:
        colours = mix(colours * GOLDEN + np.ascontiguousarray(column + 0.0).view(np.uint64), 0)
    distinct = 0
    for _ in range(MAX_ROUNDS):
        found = len(np.unique(colours))
        if found in (distinct, len(content)):
            break
        distinct = found
        read, reading = np.zeros_like(colours), np.zeros_like(colours)
        np.add.at(read, edges[:, 0], mix(colours[edges[:, 1]] + np.uint64(1), 0))
        np.add.at(reading, edges[:, 1], mix(colours[edges[:, 0]] + np.uint64(2), 0))
        colours = mix(colours * GOLDEN + mix(read, 0) * np.uint64(3) + reading, 0)
    return colours
