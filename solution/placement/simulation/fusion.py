"""Fuse nodes into kernels by priority, compiled.

A node is merged into what reads it where all its readers are one kernel already, on its device, and
the kernel stays within its limits. So every kernel has one node that others read, its last, and
kernels cannot wait for each other: no search for cycles is needed.
"""

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import ELEMENTWISE, PRODUCT, REDUCTION

MAX_SIZE = 64  # nodes of a kernel


@njit(cache=True, nogil=True)
def visiting_order(levels, num_levels):
    """Nodes (k,) of a level above 0 by falling level, consumers first: a counting sort."""
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
    """The last node of the kernel that a node is in; paths are halved on the way."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@njit(cache=True, nogil=True)
def fuse(kinds, start, of, placement, levels, num_levels):
    """The kernel (nodes,) int64 of each node, called after its last node.

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
