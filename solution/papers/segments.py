"""Divide a graph's nodes into segments of bounded size, so that a step trains on a few of them.

    metis        few edges between segments, which have about equal sizes; needs pymetis
    topological  consecutive nodes in an order in which producers come before their consumers

Both depend on the order of the edges (the operands of a node in order), never on node numbers.

Sources: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
graphs", SIAM Journal on Scientific Computing, 1998; Kahn, "Topological sorting of large networks",
Communications of the ACM, 1962.
"""

import heapq
from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.system.errors import InputError

SEED = 1  # METIS's random seed


def divide_nodes(graph: Graph, partition: str, max_nodes: int | None) -> list[np.ndarray]:
    """Return the nodes of each segment, at most `max_nodes` (None: all; METIS may exceed this by a
    few percent). Every node is in exactly one segment. Raises InputError if pymetis is needed and
    missing."""
    order = topological_order(graph)
    count = 1 if max_nodes is None else -(-graph.num_nodes // max_nodes)
    return PARTITIONS[partition](graph, order, count) if count > 1 else [order]


def topological_order(graph: Graph) -> np.ndarray:
    """Return the nodes (nodes,) with producers before consumers. If several nodes could be next,
    the node with the earliest edge comes first. Nodes on a cycle come last; no program has any."""
    listed = _listing(graph)
    rank = np.empty(graph.num_nodes, np.int64)
    rank[listed] = np.arange(graph.num_nodes)
    consumers, producers = rank[graph.edges].T
    starts, reading = (p.tolist() for p in Neighbours.of(producers, consumers, graph.num_nodes))
    waiting = np.bincount(consumers, minlength=graph.num_nodes).tolist()
    ready = [node for node, count in enumerate(waiting) if count == 0]  # sorted, so it is a heap
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in reading[starts[node] : starts[node + 1]]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, consumer)
    order += [node for node, count in enumerate(waiting) if count > 0]
    return listed[order]


def _listing(graph: Graph) -> np.ndarray:
    """Return the nodes (nodes,) in the order of their first edges, then isolated configurable
    nodes, then all others, sorted by features."""
    named = np.concatenate([graph.edges.ravel(), graph.configurable])
    nodes, first = np.unique(named, return_index=True)
    others = np.setdiff1d(np.arange(graph.num_nodes), nodes)
    contents = [(graph.node_opcodes[n], graph.node_features[n].tobytes()) for n in others]
    ordered = others[sorted(range(len(others)), key=contents.__getitem__)]
    return np.concatenate([nodes[np.argsort(first)], ordered])


def _by_order(graph: Graph, order: np.ndarray, count: int) -> list[np.ndarray]:
    return np.array_split(order, count)


def _by_metis(graph: Graph, order: np.ndarray, count: int) -> list[np.ndarray]:
    try:
        import pymetis  # a compiled package that only this function needs
    except ImportError as error:
        raise InputError(
            "pymetis is not installed, which divides graphs into segments. Install it (pip install "
            "pymetis), or set partition='topological' in the settings of the experiment."
        ) from error
    position = np.empty(graph.num_nodes, np.int64)
    position[order] = np.arange(graph.num_nodes)
    linked = position[graph.edges[graph.edges[:, 0] != graph.edges[:, 1]]]
    ends = np.concatenate([linked, linked[:, ::-1]])
    links = coo_array((np.ones(len(ends)), tuple(ends.T)), shape=2 * (graph.num_nodes,)).tocsr()
    links.sort_indices()
    adjacency = pymetis.CSRAdjacency(links.indptr, links.indices)
    division = pymetis.part_graph(count, adjacency, options=pymetis.Options(seed=SEED))
    number = np.asarray(division.vertex_part)
    segments = [order[number == segment] for segment in range(count)]
    return [segment for segment in segments if len(segment)]


PARTITIONS: dict[str, Callable[[Graph, np.ndarray, int], list[np.ndarray]]] = {
    "metis": _by_metis,
    "topological": _by_order,
}
