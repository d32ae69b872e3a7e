"""Which dimensions a dot sums over: the npz files do not say it, but its shapes and its readers do.

How: solution.features.einsum and solution.features.gradients. Of 1,144 dots and convolutions of 72
programs of JAX, half of them training steps, 29 come out wrong, all but one of them in the loops of
recurrent nets (`python -m benchmarks.operands`); by shapes alone 144 did.

A graph of layouts or tiles that was read from a module has them as the module says (Graph.summed).

The competition's best solutions took the dimensions from the protobuf files, and its organisers
name them among what helped. Here they are found for every file, and put where a convolution has the
same: its input feature and its kernel's input feature are what it sums over.
"""

import dataclasses

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS, SUMMED
from solution.features.column import Feature
from solution.features.layout.tensors import find_tensors
from solution.features.operands import NONE, find_operands
from solution.features.padding import PADDING
from solution.features.work import num_operations

LEFT = [vocabulary.CONVOLUTION_INPUT_FEATURE, *range(95, 99)]  # and the spatial ones
RIGHT = [vocabulary.CONVOLUTION_KERNEL_INPUT, *range(101, 105)]

FEATURES = tuple(
    Feature(f"{operand}_{name}", "share", f"{operand}: {reason}, dots by operations")
    for operand in ("input", "kernel")
    for name, reason in (
        ("sums_minor", "a dimension that is summed is the contiguous one"),
        ("sums_outer", "a dimension that is summed is the outermost one"),
    )
)


def _find_contractions(graph: Graph) -> np.ndarray:
    if graph.summed is not None:  # its module says it
        return graph.summed
    found = np.full((graph.num_nodes, 2, SUMMED), NONE)
    for node, letters in find_operands(graph).letters.items():
        for row, own in zip(found[node], letters.summed, strict=True):
            row[: len(own[:SUMMED])] = own[:SUMMED]
    found.setflags(write=False)
    return found


# What each dot sums over (nodes, 2, SUMMED) int64: dimensions of its input, then of its kernel.
contractions = PerGraph(_find_contractions)


def mark_contractions(graph: Graph) -> Graph:
    """Write what dots sum over where convolutions have the same. The padding must be repaired."""
    summed = contractions(graph)
    features = graph.node_features.copy()
    is_dot = graph.node_opcodes == OPCODE_IDS["dot"]
    for place, columns in enumerate((LEFT, RIGHT)):
        own = summed[is_dot, place]
        features[np.ix_(is_dot, columns)] = np.where(own == NONE, PADDING, own)
    return dataclasses.replace(graph, node_features=features)


def contraction_rows(graph: Graph) -> np.ndarray:
    """The columns FEATURES of each distinct configuration of a layout graph: float32."""
    pairs = graph.layouts
    operations = np.where(graph.node_opcodes == OPCODE_IDS["dot"], num_operations(graph), 0)
    weights = operations[graph.configurable] / max(float(operations[graph.configurable].sum()), 1)
    columns = []
    for place, tensor in enumerate(("input", "kernel")):
        tensors = find_tensors(graph, tensor)
        slots = slice((1 + place) * MAX_RANK, (2 + place) * MAX_RANK)
        given = pairs.layouts[:, slots].astype(np.int64)
        order = np.where(given >= 0, given, tensors.layouts[pairs.node])  # (pairs, 6)
        summed = contractions(graph)[graph.configurable, place][pairs.node]
        last = np.maximum(tensors.ranks[pairs.node] - 1, 0)
        for axis in (order[:, 0], order[np.arange(len(order)), last]):
            is_summed = (summed == axis[:, None]).any(axis=1)
            columns.append(is_summed * weights[pairs.node])
    described = np.stack(columns, axis=1)
    sums = np.zeros((len(pairs.codes), len(FEATURES)))
    for used in pairs.pairs(slice(None)).T:  # a node at a time, so that memory stays small
        sums += described[used]
    return sums.astype(np.float32)
