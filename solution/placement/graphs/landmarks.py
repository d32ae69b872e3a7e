"""Where a node is: how far from a few landmarks of its graph.

What surrounds a node says little about where it is: the cells of an unrolled network all look the
same, whatever their layer. Distances from landmarks tell them apart, and mean the same in a program
of another size, for landmarks are chosen by what they are: the largest weight, then always the node
that is furthest from those before.

Source: You, Ying and Leskovec, "Position-aware graph neural networks" (2019), whose anchors are
drawn at random; furthest points and both directions are ours.
"""

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra

from solution.placement.graphs.cost_graph import CostGraph

LANDMARKS = 6
WAYS = 3  # whichever way, along the flow, against it


def find_distances(graph: CostGraph) -> np.ndarray:
    """Distances (nodes, WAYS * LANDMARKS) in edges, each column over its largest.

    Where no way leads to, one more than the furthest. Of nodes that are equally far the first in
    the graph's order is the landmark, so renumbered programs have the same.
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
    """Edges (nodes,) on the shortest way from the start."""
    found: np.ndarray = dijkstra(links, directed, indices=start, unweighted=True)
    there = np.isfinite(found)
    return np.where(there, found, found[there].max() + 1)
