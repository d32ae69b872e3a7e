"""A kernel with its fusions inlined: the one computation that runs.

In the files a fusion stands beside what it fuses. It is linked to its operands and to the root of
the computation that it calls; the parameters of that computation are nodes of their own, and no
edge says which operand each of them is. So a tensor that a kernel reads stands there once for every
fusion around it, and the way from a loop to what it reads ends inside.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.pruning import keep_nodes


def inline_fusions(graph: Graph) -> Graph:
    """Put the root of its computation in each fusion's place, and operands in its parameters'.

    An operand and a parameter are the same tensor where type, shape and layout agree; which of
    several alike is which, only their numbers say. Nodes keep their order. A fusion that is not
    linked to a computation of its own stays, and a graph without others comes back itself.
    """
    return _inlined(graph) or graph


def _inline(graph: Graph) -> Graph | None:
    """None where there is nothing to inline, since a graph must not keep itself in memory."""
    fusions = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["fusion"]).tolist()
    if not fusions:
        return None
    stands_for = _resolve(graph, fusions)
    inlined = [fusion for fusion in fusions if stands_for[fusion] != fusion]
    if not inlined:
        return None
    features = graph.node_features.copy()
    is_root = features[:, vocabulary.IS_ROOT]
    np.minimum.at(is_root, stands_for[inlined], is_root[inlined])
    consumers, read = graph.edges.T
    linked = dataclasses.replace(
        graph,
        node_features=features,
        edges=np.stack([consumers, stands_for[read]], axis=1),
    )
    return keep_nodes(linked, np.flatnonzero(stands_for == np.arange(graph.num_nodes)))


_inlined = PerGraph(_inline)


def _resolve(graph: Graph, fusions: Sequence[int]) -> np.ndarray:
    """The node (nodes,) that each node is when fusions are inlined, itself for most."""
    producers = _list_producers(graph)
    is_root = graph.node_features[:, vocabulary.IS_ROOT] > 0
    called = {fusion: [n for n in producers[fusion] if is_root[n]] for fusion in fusions}
    callers = Counter(root for roots in called.values() for root in roots)
    stands_for = np.arange(graph.num_nodes)
    for fusion, roots in called.items():
        if len(roots) != 1 or callers[roots[0]] > 1:
            continue
        stands_for[fusion] = roots[0]
        parameters = _find_parameters(graph, producers, is_root, roots[0])
        operands = [node for node in producers[fusion] if not is_root[node]]
        for parameter, operand in _match(graph, parameters, operands):
            stands_for[parameter] = operand
    for _ in range(graph.num_nodes.bit_length()):  # fusions inside fusions
        stands_for = stands_for[stands_for]
    return stands_for


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
    numbers = graph.node_features[:, vocabulary.PARAMETER_NUMBER]
    left = defaultdict(list)
    for operand in sorted(operands, key=lambda node: (-numbers[node], -node)):
        left[graph.node_features[operand, columns].tobytes()].append(operand)
    pairs = []
    for parameter in sorted(parameters, key=lambda node: (numbers[node], node)):
        alike = left[graph.node_features[parameter, columns].tobytes()]
        if alike:  # the last one stays: what is read twice is one operand
            pairs.append((parameter, alike.pop() if len(alike) > 1 else alike[0]))
    return pairs
