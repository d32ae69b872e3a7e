"""What a first look at the data measures, one function a question; each is of one graph."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_TOKENS
from solution.features.layout.violations import violation_ratios
from solution.features.pruning import neighbourhood


def slowdowns(graph: Graph) -> np.ndarray:
    """The runtime of each configuration (configs,) over the fastest, of a labelled graph."""
    assert graph.runtimes is not None
    return graph.runtimes / graph.runtimes.min()


def fastest(graph: Graph) -> float:
    """The runtime of the fastest configuration: ns for layout, over its normaliser for tile."""
    assert graph.runtimes is not None
    return float(graph.runtimes.min())


def violation_ratio(graph: Graph) -> np.ndarray:
    """The share (configs,) of violating nodes in each configuration of a layout graph."""
    return violation_ratios(graph)[graph.layouts.rows]


def own_vectors(graph: Graph) -> np.ndarray:
    """Configurations as vectors (configs, columns) that are comparable inside this graph only.

    Layout: one column for each configurable node, slot and value. Tile: see shared_vectors.
    """
    if graph.collection.kind == "tile":
        return shared_vectors(graph)
    slots = graph.layouts.expand().reshape(graph.num_configs, -1)
    varying = slots[:, (slots != slots[0]).any(axis=0)]
    values = np.arange(LAYOUT_UNSET, MAX_RANK)
    hot = (varying[:, :, None] == values).reshape(graph.num_configs, -1)
    return hot[:, hot.any(axis=0)].astype(np.float32)


def shared_vectors(graph: Graph) -> np.ndarray:
    """Configurations as vectors (configs, columns) with the same columns for every graph.

    Layout (21 columns): for each tensor, the share of nodes that have each dimension, or none
    given, minor-most. Tile (24): the logarithm of one more than each size.
    """
    if graph.collection.kind == "tile":
        return np.log1p(np.maximum(graph.tiles, 0)).astype(np.float32)
    layouts = graph.layouts
    minor = layouts.layouts[:, ::MAX_RANK][:, : len(LAYOUT_TENSORS)]  # (pairs, tensors)
    hot = minor[:, :, None] == np.arange(LAYOUT_UNSET, MAX_RANK)
    flat = hot.reshape(len(minor), len(LAYOUT_TENSORS) * NUM_LAYOUT_TOKENS).astype(np.float32)
    sums = np.zeros((len(layouts.codes), flat.shape[1]), np.float32)
    for pairs in layouts.pairs(slice(None)).T:  # a node at a time, so that memory stays small
        sums += flat[pairs]
    return (sums / max(1, layouts.shape[1]))[layouts.rows]


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two directions in which the vectors (n, columns) differ most.

    Returns:
        The coordinates (n, 2), and the share (2,) of the variance that each direction has.
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    count = min(2, len(strengths))
    coordinates, shares = np.zeros((len(vectors), 2)), np.zeros(2)
    coordinates[:, :count] = (left * strengths)[:, :count]
    shares[:count] = strengths[:count] ** 2 / max(1e-12, float((strengths**2).sum()))
    return coordinates, shares


def opcode_shares(graph: Graph) -> np.ndarray:
    """The share of nodes (opcodes,) that have each opcode."""
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    return counts / graph.num_nodes


def kept_shares(graph: Graph, hops: range) -> list[float]:
    """The share of nodes that pruning keeps, for each number of hops; 1 for a tile graph."""
    if len(graph.configurable) == 0:
        return [1.0 for _ in hops]
    return [float(neighbourhood(graph, count).mean()) for count in hops]
