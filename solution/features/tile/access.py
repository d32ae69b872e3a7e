"""Trace how the loops of a kernel move along each of its tensors.

A tile is given for one tensor, the tiled one. Tracing from there back through the kernel's graph
finds the loop that moves along each dimension of each parameter. This tells which part of each
parameter a tile reads: bytes, cache lines, pages, and the length of contiguous runs. On any machine
with caches these decide how fast a tile is.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.padding import tensor_ranks
from solution.features.tile.access_rules import step_back
from solution.features.tile.tiling import find_tiling, physical_order
from solution.features.tile.walk import Axes, Axis, Walk
from solution.features.work import num_bytes, num_elements


def _find_walks(graph: Graph) -> list[Walk]:
    """Return the walks of the tiled tensor, then of every parameter but scalars."""
    tiling = find_tiling(graph)
    order = physical_order(graph, tiling.node)
    start: list[Axis] = [Axis()] * len(order)
    for loop, dimension in enumerate(order):  # dimensions of the output come first
        start[dimension] = Axis(loop)
    axes = _trace(graph, tiling.node, tuple(start))
    parameters = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"])
    ranks = tensor_ranks(graph)
    nodes = [tiling.node, *(node for node in parameters.tolist() if node != tiling.node)]
    return [_make_walk(graph, node, axes.get(node)) for node in nodes if ranks[node] > 0]


find_walks = PerGraph(_find_walks)


def _make_walk(graph: Graph, node: int, axes: Axes | None) -> Walk:
    """Make the walk of a tensor; one that was not reached is read whole."""
    order = physical_order(graph, node)
    dimensions = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    sizes = np.maximum(dimensions[order], 1)
    width = float(num_bytes(graph)[node] / num_elements(graph)[node])
    strides = width * np.append(np.cumprod(sizes[::-1])[::-1][1:], 1.0)
    known = axes or (Axis(),) * len(order)
    return Walk(node, sizes, strides, tuple(known[dimension] for dimension in order), width)


def _trace(graph: Graph, node: int, start: Axes) -> dict[int, Axes]:
    """Return the axes of every node that `node` is computed from, dimensions in logical order.

    If several paths reach a node, the first one counts.
    """
    found = {node: start}
    waiting = [node]
    operands = Neighbours.operands(graph.edges, graph.num_nodes)
    while waiting:
        consumer = waiting.pop(0)
        for producer in np.unique(operands.at(consumer)).tolist():
            if producer not in found and producer != consumer:
                found[producer] = step_back(graph, consumer, producer, found[consumer])
                waiting.append(producer)
    return found
