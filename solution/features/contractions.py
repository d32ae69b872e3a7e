"""Which dimensions a dot sums over: the npz files do not say, but shapes whose sizes differ do.

A dot's output has the batch dimensions, then the left operand's own, then the right one's, each in
their order; what either operand has besides is summed. Where sizes repeat, several ways fit: then
the fewest batch dimensions, the last ones of the left operand and the first ones of the right. Of
the 66 dots of five small training steps that JAX made, 43 came out as in the module, all of those
whose sizes differ; the others have square weights.

A graph of layouts or tiles that was read from a module has them as the module says (Graph.summed).

The competition's best solutions took the dimensions from the protobuf files, and its organisers
name them among what helped. Here they are found for every file, and put where a convolution has the
same: its input feature and its kernel's input feature are what it sums over.
"""

import dataclasses
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS, SUMMED
from solution.features.column import Feature
from solution.features.layout.tensors import find_tensors
from solution.features.operands import NONE, find_operands
from solution.features.padding import PADDING, tensor_ranks
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

Dimensions = tuple[int, ...]


@lru_cache(maxsize=1 << 14)
def find_summed(
    left: Dimensions, right: Dimensions, output: Dimensions
) -> tuple[Dimensions, Dimensions] | None:
    """The dimensions of the two operands that a dot of these shapes sums; None where none fit."""
    for batch in range(min(len(left), len(right), len(output)) + 1):
        summed, odd = divmod(len(left) + len(right) - len(output) - batch, 2)
        if odd or summed < 0 or batch + summed > min(len(left), len(right)):
            continue
        shared, own = output[:batch], len(left) - batch - summed
        of_left = _fitting(left, summed, shared, output[batch : batch + own])
        of_right = _fitting(right, summed, shared, output[batch + own :])
        pairs = [
            (one, other)
            for one in reversed(of_left)
            for other in of_right
            if sorted(left[k] for k in one) == sorted(right[k] for k in other)
        ]
        if pairs:
            return pairs[0]
    return None


def _fitting(
    shape: Dimensions, summed: int, batch: Dimensions, own: Dimensions
) -> list[Dimensions]:
    """The dimensions that may be summed, if the others are the `batch` and the operand's `own`."""
    found = []
    for chosen in combinations(range(len(shape)), summed):
        rest = [place for place in range(len(shape)) if place not in chosen]
        for first in permutations(rest, len(batch)):
            others = [place for place in rest if place not in first]
            if [shape[k] for k in (*first, *others)] == [*batch, *own]:
                found.append(chosen)
                break
    return found


def _find_contractions(graph: Graph) -> np.ndarray:
    if graph.summed is not None:  # its module says it
        return graph.summed
    found = np.full((graph.num_nodes, 2, SUMMED), NONE)
    operands, ranks = find_operands(graph), tensor_ranks(graph)
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS].astype(np.int64)
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["dot"]):
        three = (operands.input[node], operands.kernel[node], node)
        if NONE in three:
            continue
        summed = find_summed(*(tuple(shapes[one, : ranks[one]].tolist()) for one in three))
        for row, own in zip(found[node], summed or (), strict=False):
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
