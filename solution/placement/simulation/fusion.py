"""Fuse nodes into kernels by priority, compiled.

A node is merged into its readers if they all are in one kernel on its device, and the kernel stays
within its limits. So every kernel has a single node that other kernels read, its last, and kernels
cannot wait for each other: no search for cycles is needed.
"""

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import ELEMENTWISE, PRODUCT, REDUCTION

MAX_SIZE = 64  # maximum nodes of a kernel


@njit(cache=True, nogil=True)
def visiting_order(levels, num_levels):
    """Return the nodes (k,) with a level above 0 by falling level, consumers first (counting
    sort)."""
    counts = np.zeros(num_levels + 1, np.int64)
    for node in range(levels.size):
        counts[num_levels - 1 - levels[node] + 1] += 1
    for level in range(num_levels):
        counts[level + 1] += counts[level]
    order = np.empty(counts[num_levels - 1], np.int64)
    for node in range(levels.size - 1, -1, -1):
        if levels[node] > 0:
            place = num_levels - 1 - levels[node]
            order[counts[place]] = node
            counts[place] += 1
    return order


@njit(cache=True, nogil=True)
def find_root(parents, node):
    """Return the last node of a node's kernel (union-find with path halving)."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@njit(cache=True, nogil=True)
def fuse(kinds, start, of, placement, levels, num_levels):
    """Return the kernel (nodes,) int64 of each node, identified by the kernel's last node.

    Args:
        start, of: the consumers of each node (CostGraph.consumers).
        levels: (nodes,) int64, 0 ... num_levels - 1.
    """
    count = kinds.size
    parents = np.arange(count)
    sizes = np.ones(count, np.int64)
    products = np.zeros(count, np.int64)
    for node in range(count):
        products[node] = kinds[node] == PRODUCT
    for node in visiting_order(levels, num_levels):
        if kinds[node] != ELEMENTWISE and kinds[node] != PRODUCT or start[node] == start[node + 1]:
            continue
        target = find_root(parents, of[start[node]])
        legal = placement[target] == placement[node]
        legal &= sizes[node] + sizes[target] <= MAX_SIZE
        legal &= products[node] + products[target] <= 1
        for place in range(start[node], start[node + 1]):
            if not legal:
                break
            kind = kinds[of[place]]
            legal = kind in (ELEMENTWISE, REDUCTION) and find_root(parents, of[place]) == target
        if legal:
            parents[node] = target
            sizes[target] += sizes[node]
            products[target] += products[node]
    for node in range(count):
        parents[node] = find_root(parents, node)
    return parents
