"""Measure a graph for a first look at the data: each function measures one property."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_TOKENS
from solution.features.layout.violations import violation_ratios
from solution.features.preparation import neighbourhood


def slowdowns(graph: Graph) -> np.ndarray:
    """Return the runtimes (configs,) of a labelled graph divided by the fastest."""
    assert graph.runtimes is not None
    return graph.runtimes / graph.runtimes.min()


def fastest(graph: Graph) -> float:
    """Return the runtime of the fastest configuration: in ns for layout, normalised for tile."""
    assert graph.runtimes is not None
    return float(graph.runtimes.min())


def relative_range(graph: Graph) -> float:
    """Return (slowest - fastest) / mean of the runtimes of a labelled graph."""
    assert graph.runtimes is not None
    return float(np.ptp(graph.runtimes) / graph.runtimes.mean())


def default_runtime(graph: Graph) -> float | None:
    """Return the runtime of a labelled graph with the compiler's default configuration. Layout: the
    mean over the configurations that set no layout; None if every configuration sets one. Tile: 1,
    because runtimes are divided by the runtime of the default tile."""
    assert graph.runtimes is not None
    if graph.collection.kind == "tile":
        return 1.0
    layouts = graph.layouts
    is_unset = (layouts.layouts == LAYOUT_UNSET).all(axis=1)
    is_default = np.ones(len(layouts.codes), bool)
    for pairs in layouts.pairs(slice(None)).T:  # one node at a time, to save memory
        is_default &= is_unset[pairs]
    runtimes = graph.runtimes[is_default[layouts.rows]]
    return float(runtimes.mean()) if len(runtimes) else None


def gain_over_compiler(graph: Graph) -> float | None:
    """Return default / fastest runtime - 1; None if no configuration is the compiler's default."""
    default = default_runtime(graph)
    return None if default is None else default / fastest(graph) - 1


def violation_ratio(graph: Graph) -> np.ndarray:
    """Return the share (configs,) of configurable nodes that violate a rule of good layouts: the
    largest dimension of a node's output should be the minor-most (contiguous) one."""
    return violation_ratios(graph)[graph.layouts.rows]


def graph_vectors(graph: Graph) -> np.ndarray:
    """Return configurations as vectors (configs, columns), comparable only within this graph.
    Layout: one-hot columns for each slot (of a configurable node's layouts) whose value varies.
    Tile: as in shared_vectors."""
    if graph.collection.kind == "tile":
        return shared_vectors(graph)
    slots = graph.layouts.expand().reshape(graph.num_configs, -1)
    varying = slots[:, (slots != slots[0]).any(axis=0)]
    values = np.arange(LAYOUT_UNSET, MAX_RANK)
    hot = (varying[:, :, None] == values).reshape(graph.num_configs, -1)
    return hot[:, hot.any(axis=0)].astype(np.float32)


def shared_vectors(graph: Graph) -> np.ndarray:
    """Return configurations as vectors (configs, columns) with the same columns for every graph.
    Layout (21 columns): for each of output, input and kernel, the share of configurable nodes whose
    minor-most dimension is unset, 0, ..., 5. Tile (24 columns): log(1 + size)."""
    if graph.collection.kind == "tile":
        return np.log1p(np.maximum(graph.tiles, 0)).astype(np.float32)
    layouts = graph.layouts
    # (layouts, tensors): minor-most dimension
    minor = layouts.layouts[:, ::MAX_RANK][:, : len(LAYOUT_TENSORS)]
    hot = minor[:, :, None] == np.arange(LAYOUT_UNSET, MAX_RANK)
    flat = hot.reshape(len(minor), len(LAYOUT_TENSORS) * NUM_LAYOUT_TOKENS).astype(np.float32)
    sums = np.zeros((len(layouts.codes), flat.shape[1]), np.float32)
    for pairs in layouts.pairs(slice(None)).T:  # one node at a time, to save memory
        sums += flat[pairs]
    return (sums / max(1, layouts.shape[1]))[layouts.rows]


def principal_components(vectors: np.ndarray, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Project vectors (n, columns) onto their first `count` principal components. Returns the
    coordinates (n, count) and each component's share (count,) of the variance. Components that do
    not exist are 0."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    found = min(count, len(strengths))
    coordinates, shares = np.zeros((len(vectors), count)), np.zeros(count)
    coordinates[:, :found] = (left * strengths)[:, :found]
    shares[:found] = strengths[:found] ** 2 / max(1e-12, float((strengths**2).sum()))
    return coordinates, shares


def opcode_shares(graph: Graph) -> np.ndarray:
    """Return each opcode's share (opcodes,) of the nodes."""
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    return counts / graph.num_nodes


def kept_shares(graph: Graph, hops: range) -> list[float]:
    """Return the share of nodes that pruning keeps, for each number of hops. Pruning keeps the
    nodes within this many edges (hops) of a configurable node; the graph must have such nodes."""
    return [float(neighbourhood(graph, count).mean()) for count in hops]
