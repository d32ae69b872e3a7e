"""Describe a node's position by its distances from a few landmarks of its graph.

A node's neighbourhood says little about its position: all cells of an unrolled network look the
same, whatever their layer. Distances from landmarks distinguish them. They also mean the same in a
program of another size, because landmarks are chosen by content: the first is the node with the
largest weight, each next one the node furthest from the landmarks so far.

Source: You, Ying and Leskovec, "Position-aware graph neural networks" (2019), whose anchors are
drawn at random; furthest points and both directions are additions here.
"""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra

from solution.placement.graphs.cost_graph import CostGraph

LANDMARKS = 6
WAYS = 3  # undirected, along the edges, against them


def find_distances(graph: CostGraph) -> np.ndarray:
    """Return distances (nodes, WAYS * LANDMARKS) in edges, each column divided by its maximum.

    A node that cannot be reached counts as one edge further than the furthest. If several nodes are
    equally far, the first in canonical order becomes the landmark, so renumbering changes nothing.
    """
    count = graph.num_nodes
    consumer, producer = graph.edges.T
    shape, ones = (count, count), np.ones(len(graph.edges))
    along = coo_array((ones, (producer, consumer)), shape=shape).tocsr()
    against = coo_array((ones, (consumer, producer)), shape=shape).tocsr()
    columns, nearest = [], np.full(count, np.inf)
    landmark = int(np.argmax(graph.resident_bytes))
    for _ in range(LANDMARKS):
        around = _walk(along, landmark, directed=False)
        nearest = np.minimum(nearest, around)
        columns += [around, *(_walk(links, landmark) for links in (along, against))]
        landmark = int(np.argmax(nearest))
    distances = np.stack(columns, axis=1)
    return distances / np.maximum(distances.max(axis=0), 1)


def _walk(links: csr_array, start: int, *, directed: bool = True) -> np.ndarray:
    """Return the length in edges (nodes,) of the shortest path from the start."""
    found: np.ndarray = dijkstra(links, directed, indices=start, unweighted=True)
    there = np.isfinite(found)
    return np.where(there, found, found[there].max() + 1)
