"""A kernel with its fusions inlined: the one computation that runs.

In the files a fusion stands beside what it fuses. It is linked to its operands and to the root of
the computation that it calls; the parameters of that computation are nodes of their own, and no
edge says which operand each of them is. So a tensor that a kernel reads stands there once for every
fusion around it, and the way from a loop to what it reads ends inside.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from solution import vocabulary
from solution.data.graphs import PerGraph
from solution.graph import Graph
from solution.vocabulary import OPCODE_IDS


def _inline_fusions(graph: Graph) -> Graph:
    """Put the root of its computation in each fusion's place, and operands in its parameters'.

    An operand and a parameter are the same tensor where type, shape and layout agree; of several
    the ones with the lowest numbers. Nodes keep their order. A graph without fusions, or whose
    fusions are not linked to their computations, comes back itself.
    """
    producers = _list_producers(graph)
    stands_for = np.arange(graph.num_nodes)
    is_root = graph.node_features[:, vocabulary.IS_ROOT] > 0
    fusions = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["fusion"])
    inlined = []
    for fusion in fusions.tolist():
        called = [node for node in producers[fusion] if is_root[node]]
        if len(called) != 1:
            continue
        inlined.append(fusion)
        stands_for[fusion] = called[0]
        parameters = _find_parameters(graph, producers, is_root, called[0])
        operands = [node for node in producers[fusion] if not is_root[node]]
        for parameter, operand in _match(graph, parameters, operands):
            stands_for[parameter] = operand
    if not inlined:
        return graph
    while (stands_for != stands_for[stands_for]).any():
        stands_for = stands_for[stands_for]
    features = graph.node_features.copy()
    np.minimum.at(features[:, vocabulary.IS_ROOT], stands_for[inlined], features[inlined, 0])
    kept = np.flatnonzero(stands_for == np.arange(graph.num_nodes))
    position = np.full(graph.num_nodes, -1)
    position[kept] = np.arange(len(kept))
    consumers, read = graph.edges[~np.isin(graph.edges[:, 0], inlined)].T
    return dataclasses.replace(
        graph,
        node_features=features[kept],
        node_opcodes=graph.node_opcodes[kept],
        edges=np.stack([position[consumers], position[stands_for[read]]], axis=1),
    )


inline_fusions = PerGraph(_inline_fusions)


def _list_producers(graph: Graph) -> dict[int, list[int]]:
    producers = defaultdict(list)
    for consumer, producer in np.unique(graph.edges, axis=0).tolist():
        producers[consumer].append(producer)
    return producers


def _find_parameters(
    graph: Graph, producers: dict[int, list[int]], is_root: np.ndarray, root: int
) -> list[int]:
    """The parameters of the computation of `root`, not of those that it calls."""
    found, waiting = {root}, [root]
    while waiting:
        new = {node for node in producers[waiting.pop()] if not is_root[node]} - found
        found |= new
        waiting += new
    parameter = OPCODE_IDS["parameter"]
    return [node for node in found if graph.node_opcodes[node] == parameter]


def _match(
    graph: Graph, parameters: Sequence[int], operands: Sequence[int]
) -> list[tuple[int, int]]:
    """Pairs of a parameter and the operand that it is."""
    columns = np.r_[vocabulary.ELEMENT_TYPE, vocabulary.SHAPE_DIMENSIONS, vocabulary.NODE_LAYOUT]
    left = defaultdict(list)
    for operand in sorted(operands, reverse=True):
        left[graph.node_features[operand, columns].tobytes()].append(operand)
    numbers = graph.node_features[:, vocabulary.PARAMETER_NUMBER]
    pairs = []
    for parameter in sorted(parameters, key=lambda node: (numbers[node], node)):
        alike = left[graph.node_features[parameter, columns].tobytes()]
        if alike:
            pairs.append((parameter, alike.pop()))
    return pairs
