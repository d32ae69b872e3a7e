"""Draw some nodes of a graph: at random while training, by what is around each while predicting."""

import hashlib

import numpy as np
import torch

from solution.domain.graph import Graph
from solution.domain.mixing import mix
from solution.domain.neighbours import Neighbours
from solution.models.layout.colour_refinement import mix_neighbours

DRAWS = ("evenly", "work")
HASHED_HOPS = 3  # how far nodes have to look alike


def hash_nodes(graph: Graph) -> np.ndarray:
    """A hash (nodes,) uint64 of each node's own features and of those around it."""
    is_configurable = np.zeros(graph.num_nodes, np.float32)
    is_configurable[graph.configurable] = 1
    rows = np.column_stack([graph.node_features, graph.node_opcodes, is_configurable])
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8) for row in rows.astype(np.float32)]
    keys = np.array([int.from_bytes(d.digest(), "little") for d in digests], np.uint64)[:, None]
    operands = Neighbours.operands(graph.edges, graph.num_nodes)
    consumers = Neighbours.consumers(graph.edges, graph.num_nodes)
    for _ in range(HASHED_HOPS):
        keys = mix_neighbours(keys, operands, consumers)
    return keys[:, 0]


def choose_by_contents(keys: np.ndarray, count: int, preferred: np.ndarray) -> np.ndarray:
    """At most `count` nodes (k,) int64 in order, the preferred ones (nodes,) bool first.

    Nodes with the same of `keys` (nodes,) come together; those that do not fit are passed over. If
    none fit, the fewest that are alike are taken.
    """
    classes, member, sizes = np.unique(
        np.stack([~preferred, keys]).astype(np.uint64), axis=1, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    taken, left = np.zeros(classes.shape[1], bool), count
    for number, size in enumerate(sizes.tolist()):
        if size <= left:
            taken[number] = True
            left -= size
    if not taken.any():
        taken[np.argmin(sizes)] = True
    return np.flatnonzero(taken[member.ravel()])


def choose_at_random(
    count: int, preferred: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """`count` random nodes (k,) int64 in order, the preferred ones (nodes,) bool first.

    Args:
        weights: (nodes,) the next node is drawn with probabilities in proportion to these, from
            those that are left; None: evenly.

    Source: of a race of exponential clocks, Efraimidis and Spirakis, "Weighted random sampling with
    a reservoir", Information Processing Letters, 2006.
    """
    if weights is None:
        arrival = torch.rand(len(preferred)).numpy()
    else:
        arrival = torch.empty(len(preferred)).exponential_().numpy() / weights
    return np.sort(np.lexsort((arrival, ~preferred))[:count])


def mix_keys(keys: np.ndarray, number: int) -> np.ndarray:
    """Other keys (nodes,) uint64 for each `number`, equal where `keys` are; of 0, the same ones."""
    return keys if number == 0 else mix(keys, number)
