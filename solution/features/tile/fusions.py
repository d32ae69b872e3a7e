"""Inline the fusions of a kernel, so that one computation remains.

In the files a fusion is one node, and the computation that it fuses consists of other nodes. The
fusion has edges to its operands and to the computation's root. No edge tells which operand each
parameter of the computation is. A tensor that a kernel reads therefore appears once for every
fusion around it, and a path from a loop to the tensor that it reads ends at a parameter.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.preparation import keep_nodes


def inline_fusions(graph: Graph) -> Graph:
    """Return the graph with each fusion replaced by the root of its computation; the same graph if
    no fusion is replaced. The parameters of the computation are replaced by the fusion's operands
    of equal type, shape and layout, in the order of parameter numbers. A fusion stays if it calls
    no computation or several, or a computation that another fusion calls as well."""
    return _inlined(graph) or graph


def _inline(graph: Graph) -> Graph | None:
    """Return the graph with inlined fusions; None if no fusion can be inlined."""
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
        graph, node_features=features, edges=np.stack([consumers, stands_for[read]], axis=1)
    )
    return keep_nodes(linked, np.flatnonzero(stands_for == np.arange(graph.num_nodes)))


_inlined = PerGraph(_inline)


def _resolve(graph: Graph, fusions: Sequence[int]) -> np.ndarray:
    """Return the node (nodes,) that replaces each node; most nodes replace themselves."""
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
    # Resolve nested fusions: each pass doubles the depth that is resolved.
    for _ in range(graph.num_nodes.bit_length()):
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
    """Return the parameters of the computation of `root`, without the parameters of computations
    that it calls."""
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
    """Return pairs (parameter, operand) with equal type, shape and layout."""
    columns = np.r_[vocabulary.ELEMENT_TYPE, vocabulary.SHAPE_DIMENSIONS, vocabulary.NODE_LAYOUT]
    numbers = graph.node_features[:, vocabulary.PARAMETER_NUMBER]
    left = defaultdict(list)
    for operand in sorted(operands, key=lambda node: (-numbers[node], -node)):
        left[graph.node_features[operand, columns].tobytes()].append(operand)
    pairs = []
    for parameter in sorted(parameters, key=lambda node: (numbers[node], node)):
        alike = left[graph.node_features[parameter, columns].tobytes()]
        # the last operand may match several parameters, because it has one edge if it is read twice
        if alike:
            pairs.append((parameter, alike.pop() if len(alike) > 1 else alike[0]))
    return pairs
