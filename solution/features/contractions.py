"""Infer the dimensions that a dot contracts, which the npz files do not contain.

They are inferred from the shapes and the readers of a dot (solution.features.einsum,
solution.features.gradients). Of 1,144 dots and convolutions of 72 JAX programs, half of them
training steps, 29 are inferred wrongly, all but one in the loops of recurrent nets
(`python -m benchmarks.operands`). Inferred from shapes alone, 144 were wrong. A graph that was read
from a module has the contracted dimensions of the module (Graph.summed).

The competition's best solutions read these dimensions from the protobuf files, and the organisers
name them among the features that helped. Here every graph can have them: mark_contractions writes
the dimensions into columns that otherwise only convolutions use (the input's feature and spatial
dimensions, and the kernel's input feature and spatial dimensions).
"""

import dataclasses

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS, PADDING, SUMMED
from solution.features.column import Feature
from solution.features.layout.tensors import find_tensors
from solution.features.operations import NONE, find_operands, num_operations

# columns that hold a dot's contracted dimensions, or a convolution's feature and spatial dimensions
LEFT = [vocabulary.CONVOLUTION_INPUT_FEATURE, *range(95, 99)]
RIGHT = [vocabulary.CONVOLUTION_KERNEL_INPUT, *range(101, 105)]

FEATURES = tuple(
    Feature(f"{operand}_{name}", "share", f"{operand}: {reason}; dots weighted by operations")
    for operand in ("input", "kernel")
    for name, reason in (
        ("sums_minor", "a contracted dimension is contiguous"),
        ("sums_outer", "a contracted dimension is outermost"),
    )
)


def _find_contractions(graph: Graph) -> np.ndarray:
    if graph.summed is not None:  # the module states the contracted dimensions
        return graph.summed
    found = np.full((graph.num_nodes, 2, SUMMED), NONE)
    for node, letters in find_operands(graph).letters.items():
        for row, summed in zip(found[node], letters.summed, strict=True):
            row[: len(summed[:SUMMED])] = summed[:SUMMED]
    found.setflags(write=False)
    return found


# The contracted dimensions (nodes, 2, SUMMED) of each dot: of its input, then of its kernel.
contractions = PerGraph(_find_contractions)


def mark_contractions(graph: Graph) -> Graph:
    """Return the graph with the contracted dimensions of dots in the columns LEFT and RIGHT, which
    otherwise only convolutions use. The graph's padding must be correct."""
    summed = contractions(graph)
    features = graph.node_features.copy()
    is_dot = graph.node_opcodes == OPCODE_IDS["dot"]
    for operand, columns in enumerate((LEFT, RIGHT)):
        contracted = summed[is_dot, operand]
        features[np.ix_(is_dot, columns)] = np.where(contracted == NONE, PADDING, contracted)
    return dataclasses.replace(graph, node_features=features)


def contraction_rows(graph: Graph) -> np.ndarray:
    """Return the columns FEATURES (distinct configs, columns) float32: the share of work in dots
    with a contracted dimension that is contiguous, or outermost, in the operand's layout."""
    pairs = graph.layouts
    operations = np.where(graph.node_opcodes == OPCODE_IDS["dot"], num_operations(graph), 0)
    weights = operations[graph.configurable] / max(float(operations[graph.configurable].sum()), 1)
    columns = []
    for operand, tensor in enumerate(("input", "kernel")):
        tensors = find_tensors(graph, tensor)
        slots = slice((1 + operand) * MAX_RANK, (2 + operand) * MAX_RANK)
        given = pairs.layouts[:, slots].astype(np.int64)
        order = np.where(given >= 0, given, tensors.layouts[pairs.node])  # (pairs, 6) layouts
        summed = contractions(graph)[graph.configurable, operand][pairs.node]
        last = np.maximum(tensors.ranks[pairs.node] - 1, 0)
        for axis in (order[:, 0], order[np.arange(len(order)), last]):
            is_summed = (summed == axis[:, None]).any(axis=1)
            columns.append(is_summed * weights[pairs.node])
    described = np.stack(columns, axis=1)
    sums = np.zeros((len(pairs.codes), len(FEATURES)))
    # Sum over the nodes of each configuration, one node at a time to save memory.
    for used in pairs.pairs(slice(None)).T:
        sums += described[used]
    return sums.astype(np.float32)
