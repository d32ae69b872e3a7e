"""List operands and consumers of the nodes of a graph, compute depths, and index ragged arrays.

The rows of a ragged array have different lengths and are stored one after the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Neighbours(NamedTuple):
    """CSR adjacency: the neighbours of node v are nodes[starts[v] : starts[v + 1]]."""

    starts: np.ndarray  # (nodes + 1,) int64: where each node's neighbours begin in `nodes`
    nodes: np.ndarray  # (edges,) int64: the neighbours of all nodes, node after node

    @classmethod
    def of(cls, targets: np.ndarray, sources: np.ndarray, num_nodes: int) -> "Neighbours":
        """Build the CSR adjacency: source nodes per target, in edge order."""
        order = np.argsort(targets, kind="stable")
        starts = starts_of(np.bincount(targets, minlength=num_nodes))
        return cls(starts, np.ascontiguousarray(sources[order]))

    @classmethod
    def operands(cls, edges: np.ndarray, num_nodes: int) -> "Neighbours":
        """Return the operands of each node; `edges` (edges, 2) has rows [consumer, producer]."""
        return cls.of(edges[:, 0], edges[:, 1], num_nodes)

    @classmethod
    def consumers(cls, edges: np.ndarray, num_nodes: int) -> "Neighbours":
        """Return the consumers of each node; `edges` (edges, 2) has rows [consumer, producer]."""
        return cls.of(edges[:, 1], edges[:, 0], num_nodes)

    @classmethod
    def join(cls, parts: Sequence["Neighbours"]) -> "Neighbours":
        """Join the adjacencies of several graphs into one graph with consecutive node numbers."""
        if len(parts) == 1:
            return parts[0]
        sizes, edges = [len(part.starts) - 1 for part in parts], [len(part.nodes) for part in parts]
        starts = [p.starts[:-1] + first for p, first in zip(parts, offsets(edges), strict=True)]
        nodes = [part.nodes + first for part, first in zip(parts, offsets(sizes), strict=True)]
        return cls(np.concatenate([*starts, [sum(edges)]]), np.concatenate(nodes))

    def at(self, node: int | np.intp) -> np.ndarray:
        """Return the neighbours of one node."""
        return self.nodes[self.starts[node] : self.starts[node + 1]]

    def cut(self, nodes: slice) -> "Neighbours":
        """Return the adjacency of a range of nodes. It shares the array `nodes` of neighbours, so
        its `starts` need not begin at 0."""
        return Neighbours(self.starts[nodes.start : nodes.stop + 1], self.nodes)

    def counts(self) -> np.ndarray:
        """Return the number of neighbours of each node (nodes,)."""
        return np.diff(self.starts)

    def spread(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """List the neighbours of several nodes. Return two arrays with an entry for each neighbour:
        the index of its node in `nodes` (rows,), ascending, and the neighbour."""
        first = self.starts[nodes]
        rows, inside = index_ragged(self.starts[nodes + 1] - first)
        return rows, self.nodes[first[rows] + inside]


def find_depths(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return the number of edges (nodes,) on the longest path to each node; -1 on or after a cycle.
    `edges`: (edges, 2), rows [consumer, producer]."""
    consumers = Neighbours.consumers(edges, num_nodes)
    # number of each node's operands not yet visited
    waiting = np.bincount(edges[:, 0], minlength=num_nodes)
    depths = np.full(num_nodes, -1)
    front, depth = np.flatnonzero(waiting == 0), 0
    # Kahn's algorithm: each step visits the nodes whose last operand the previous step visited
    while len(front):
        depths[front] = depth
        nodes, times = np.unique(consumers.spread(front)[1], return_counts=True)
        waiting[nodes] -= times
        front, depth = nodes[waiting[nodes] == 0], depth + 1
    return depths


def starts_of(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each row of a ragged array, then the end of the last row: (rows + 1,).
    Row i has counts[i] entries."""
    return np.concatenate([[0], np.cumsum(counts)])


def offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the offset of each part (parts,) if parts of these sizes are concatenated."""
    return starts_of(sizes)[:-1].astype(np.int64)


def index_ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row index and the index within the row of every entry of a ragged array. Row i has
    counts[i] entries; both results have the shape (entries,)."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(offsets(counts), counts)
