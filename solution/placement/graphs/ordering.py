"""A topological order that does not depend on how nodes are numbered.

Nodes are sorted by their depth on the longest path; those of one depth by their colour: a hash of
what a node is, refined by the hashes of its neighbours until no two more nodes are told apart
(Weisfeiler and Leman). Only nodes that no such round tells apart keep the order of their numbers.
"""

import numpy as np

from solution.domain.mixing import GOLDEN, mix
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
    depths = find_depths(len(content), edges)
    if (depths < 0).any():
        stuck = np.flatnonzero(depths < 0)
        raise InputError(
            f"{name}: the graph has a cycle; {len(stuck)} nodes wait for each other, among them "
            f"{', '.join(map(str, stuck[:5]))}. A program to be placed has none."
        )
    return np.lexsort((_colour(content, edges), depths))


def find_depths(count: int, edges: np.ndarray) -> np.ndarray:
    """Edges (nodes,) int64 on the longest path to each node; -1 on a cycle and behind it."""
    consumers, producers = edges[:, 0], edges[:, 1]
    order = np.argsort(producers, kind="stable")
    start = np.searchsorted(producers[order], np.arange(count + 1))
    consumers = consumers[order]
    waiting = np.bincount(edges[:, 0], minlength=count)
    depths = np.full(count, -1)
    front, depth = np.flatnonzero(waiting == 0), 0
    while len(front):
        depths[front] = depth
        # All edges that leave the front at once: the runs of `consumers`, one after the other.
        sizes = start[front + 1] - start[front]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        reached = consumers[np.repeat(start[front], sizes) + inside]
        nodes, times = np.unique(reached, return_counts=True)
        waiting[nodes] -= times
        front, depth = nodes[waiting[nodes] == 0], depth + 1
    return depths


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
