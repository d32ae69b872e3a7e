"""Describe the operations of a graph: rank, size and bytes of each result, operands, and work.

The order of edges does not give the order of operands: the competition's files sort a node's
operands by number, with the roots of called computations among them. Mostly the shapes decide which
operand is a node's input and which its kernel. For a dot that is a gradient, the other readers of
the same tensors decide (solution.features.gradients).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.einsum import Einsum, count_terms, label_dot
from solution.features.gradients import find_gradients, find_told

NONE = -1
# minimum number of dimensions of the queries and keys of multi-head attention
HEADS = 3
# opcodes that may compute queries and keys
MADE_ALIKE = [OPCODE_IDS[name] for name in ("add", "dot", "reshape", "transpose")]


def _find_ranks(graph: Graph) -> np.ndarray:
    """Return the rank (nodes,) of each output tensor, at most six: the number of the shape's slots
    up to the last nonzero size or, because a shape may end in a dimension of size 0, one more than
    the highest dimension in the layout if that is larger."""
    by_shape = count_used_slots(graph.node_features[:, vocabulary.SHAPE_DIMENSIONS])
    highest_axis = graph.node_features[:, vocabulary.NODE_LAYOUT].max(axis=1)
    by_layout = np.where(highest_axis > 0, highest_axis + 1, 0).astype(np.int64)
    ranks = np.minimum(np.maximum(by_shape, by_layout), MAX_RANK)
    ranks.setflags(write=False)
    return ranks


# The rank (nodes,) of each node's output tensor: 0 for scalars and tuples.
tensor_ranks = PerGraph(_find_ranks)


def count_used_slots(values: np.ndarray) -> np.ndarray:
    """Return the number of slots (nodes,) up to the last one that is not 0."""
    slots = np.arange(1, values.shape[1] + 1)
    return np.where(values != 0, slots, 0).max(axis=1)


def _count_elements(graph: Graph) -> np.ndarray:
    dimensions = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    return _fix(np.where(dimensions > 0, dimensions, 1).prod(axis=1))


# Elements (nodes,) of each output tensor, at least 1.
num_elements = PerGraph(_count_elements)


def element_bytes(graph: Graph) -> np.ndarray:
    """Return the bytes (nodes,) of one element of each output tensor; 1 if the type is unknown."""
    return np.maximum(graph.node_features[:, vocabulary.ELEMENT_TYPE] @ vocabulary.ELEMENT_BYTES, 1)


def _count_bytes(graph: Graph) -> np.ndarray:
    return _fix(num_elements(graph) * element_bytes(graph))


# Bytes (nodes,) of each output tensor; an element of unknown type counts as one byte.
num_bytes = PerGraph(_count_bytes)


def _fix(values: np.ndarray) -> np.ndarray:
    """Return the array as read-only, because callers share it."""
    values.setflags(write=False)
    return values


@dataclass(frozen=True)
class Operands:
    """The tensors that a convolution, dot or reshape reads, named as in LAYOUT_TENSORS: "kernel" is
    the second operand, such as weights."""

    # (nodes,) first operand of a convolution, dot or reshape, a node id; NONE for other nodes
    input: np.ndarray
    # (nodes,) second operand of a dot or convolution; NONE for a reshape
    kernel: np.ndarray
    # {dot: einsum letters of its dimensions}, for each dot whose shapes fit
    letters: dict[int, Einsum] = field(default_factory=dict)


def _find_operands(graph: Graph) -> Operands:
    """Find input and kernel of every convolution, dot and reshape, and label the dots."""
    found = _guess(graph)
    dots = np.flatnonzero((graph.node_opcodes == OPCODE_IDS["dot"]) & (found.kernel != NONE))
    guess = {node: (int(found.input[node]), int(found.kernel[node])) for node in dots.tolist()}
    label = partial(_label, graph, tensor_ranks(graph))
    gradients = find_gradients(graph, tensor_ranks(graph), guess, label)
    for node, pair in guess.items():
        gradient = gradients.get(node)
        letters = label(node, *pair) if gradient is None else gradient.letters
        if gradient is not None:
            found.input[node], found.kernel[node] = gradient.left, gradient.right
        if letters is not None:
            found.letters[node] = letters
    return found


def _label(graph: Graph, ranks: np.ndarray, node: int, left: int, right: int) -> Einsum | None:
    """Return the einsum letters of a dot, inferred from the shapes and from the contracted
    dimensions if a module states them; None if no letters fit."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    sizes = [tuple(shapes[k, : ranks[k]].astype(int).tolist()) for k in (left, right, node)]
    is_alike = _is_alike(graph, left, right)
    return label_dot(*sizes, is_alike=is_alike, summed=find_told(graph, node))


def _is_alike(graph: Graph, left: int, right: int) -> bool:
    """Return True if two tensors may be queries and keys: they have three or more dimensions, and
    equal operations compute them."""
    made = graph.node_opcodes[left], graph.node_opcodes[right]
    listed = graph.node_features[[left, right], vocabulary.DIMENSIONS]
    is_alike = made[0] == made[1] and made[0] in MADE_ALIKE and (listed[0] == listed[1]).all()
    return bool(is_alike) and left != right and tensor_ranks(graph)[left] >= HEADS


def _guess(graph: Graph) -> Operands:
    """Return the input and kernel of each node, inferred from shapes: the ordered pair of operands
    that fits best. Of equally good pairs, choose the pair with the larger input; if all shapes and
    layouts are equal as well, the pair whose input has the lower node number."""
    found = Operands(np.full(graph.num_nodes, NONE), np.full(graph.num_nodes, NONE))
    fits = {
        OPCODE_IDS["convolution"]: _fit_convolution,
        OPCODE_IDS["dot"]: _fit_dot,
        OPCODE_IDS["reshape"]: _fit_reshape,
    }
    operands = Neighbours.operands(graph.edges, graph.num_nodes)
    for node in np.flatnonzero(np.isin(graph.node_opcodes, list(fits))):
        read = np.unique(operands.at(node))
        if len(read) == 0:
            continue
        fit = fits[int(graph.node_opcodes[node])]
        # Pair a single operand with itself: a reshape reads one tensor, and x * x has one edge.
        pairs = list(permutations(read, 2)) or [(read[0], read[0])]
        best = pairs[0]
        if len(pairs) > 1:
            best = _choose(pairs, fit, graph.node_features, node)
        found.input[node] = best[0]
        if graph.node_opcodes[node] != OPCODE_IDS["reshape"]:
            found.kernel[node] = best[1]
    return found


find_operands = PerGraph(_find_operands)


def _choose(
    pairs: list[tuple[int, int]],
    fit: Callable[[np.ndarray, np.ndarray], int],
    features: np.ndarray,
    node: np.intp,
) -> tuple[int, int]:
    """Return the pair of operands in `pairs` that is most likely (input, kernel). `fit`: a function
    that scores how well the shapes of two operands fit the node."""
    shapes = [features[list(pair), vocabulary.SHAPE_DIMENSIONS].astype(np.int64) for pair in pairs]
    fits = [fit(features[node], shape) for shape in shapes]
    most = max(fits)
    best = [pair for pair, fit_of_pair in enumerate(fits) if fit_of_pair == most]
    if len(best) == 1:
        return pairs[best[0]]

    # compare node numbers last, because they are arbitrary
    def order(pair: int) -> tuple[Any, ...]:
        size = np.maximum(shapes[pair][0], 1).prod()
        layouts = features[list(pairs[pair]), vocabulary.NODE_LAYOUT]
        return size, *shapes[pair].ravel(), *layouts.ravel(), -pairs[pair][0]

    return pairs[max(best, key=order)]


def _fit_convolution(node: np.ndarray, shapes: np.ndarray) -> int:
    """Return a score of how well operands of `shapes` (2, 6) fit a convolution; high is good."""
    output = node[vocabulary.SHAPE_DIMENSIONS]
    numbers = np.clip(node, 0, vocabulary.MAX_RANK - 1).astype(np.int64)
    input_batch = numbers[vocabulary.CONVOLUTION_INPUT_BATCH]
    kernel_output = numbers[vocabulary.CONVOLUTION_KERNEL_OUTPUT]
    output_batch = numbers[vocabulary.CONVOLUTION_OUTPUT_BATCH]
    output_feature = numbers[vocabulary.CONVOLUTION_OUTPUT_FEATURE]
    spatial = numbers[vocabulary.CONVOLUTION_KERNEL_SPATIAL]
    window = node[vocabulary.WINDOW_SIZE]
    used = np.flatnonzero(window[: len(spatial)] > 0)
    source, kernel = shapes
    return int(
        (source[input_batch] == output[output_batch])
        + (kernel[kernel_output] == output[output_feature])
        + 2 * all(kernel[spatial[slot]] == window[slot] for slot in used)
    )


def _fit_dot(node: np.ndarray, shapes: np.ndarray) -> int:
    """Return a score of how well a left and a right operand of `shapes` (2, 6) fit a dot. The
    output has the left operand's dimensions first. If both orders of the operands fit, the order
    that makes the dot a usual matrix product (Einsum.is_usual) scores higher."""
    three = [shape[shape > 0] for shape in (*shapes, node[vocabulary.SHAPE_DIMENSIONS])]
    left, right, output = three
    if len(output) == 0:
        return 0
    possible = count_terms(*(_sizes(shape) for shape in three)) is not None
    letters = label_dot(*(tuple(shape.astype(int).tolist()) for shape in three))
    usual = letters is not None and letters.is_usual
    return int(6 * possible + 2 * (output[0] in left) + 2 * (output[-1] in right) + usual)


def _sizes(shape: np.ndarray) -> tuple[int, ...]:
    return tuple(shape[shape > 1].astype(int).tolist())


def terms_of_dots(graph: Graph) -> np.ndarray:
    """Return the number of terms (nodes,) that a dot multiplies and sums for each element of its
    output; 1 for other nodes."""
    terms = np.ones(graph.num_nodes)
    operands = find_operands(graph)
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["dot"]):
        three = (operands.input[node], operands.kernel[node], node)
        if NONE not in three:
            terms[node] = count_terms(*(_sizes(shapes[one]) for one in three)) or 1
    return terms


def _fit_reshape(node: np.ndarray, shapes: np.ndarray) -> int:
    """Return 1 if the operand has as many elements as the result of the reshape, else 0."""
    sizes = [
        np.maximum(shape, 1).prod() for shape in (node[vocabulary.SHAPE_DIMENSIONS], shapes[0])
    ]
    return int(sizes[0] == sizes[1])


def _contract(graph: Graph) -> np.ndarray:
    """Return the number of terms (nodes,) in the sum of each output element. For a convolution, it
    is the kernel's number of elements divided by the number of output features."""
    kernel = find_operands(graph).kernel
    right = np.where(kernel >= 0, num_elements(graph)[kernel], 1)
    features = graph.node_features[:, vocabulary.CONVOLUTION_OUTPUT_FEATURE].astype(np.int64)
    shape = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    output_features = np.maximum(shape[np.arange(len(shape)), np.clip(features, 0, 5)], 1)
    convolution = right / output_features
    is_convolution = graph.node_opcodes == OPCODE_IDS["convolution"]
    return _fix(np.where(is_convolution, convolution, terms_of_dots(graph)))


# Number of terms (nodes,) that each output element of a dot or convolution sums; 1 for other nodes.
contracted_size = PerGraph(_contract)


def num_operations(graph: Graph) -> np.ndarray:
    """Return the number of arithmetic operations (nodes,): multiply-adds of dots and convolutions,
    one for each element of other nodes."""
    return num_elements(graph) * np.maximum(contracted_size(graph), 1)


def configurable_shares(graph: Graph) -> np.ndarray:
    """Return each configurable node's share (configurable, 2) of the operations, and of the output
    bytes, of all configurable nodes."""
    operations = num_operations(graph)[graph.configurable]
    size = num_bytes(graph)[graph.configurable]
    return np.stack([operations / operations.sum(), size / size.sum()], axis=1)


def tensor_shares(graph: Graph) -> np.ndarray:
    """Return each tensor's share (configurable, 3) of the bytes of all outputs, inputs and kernels
    of configurable nodes."""
    size, operands = num_bytes(graph), find_operands(graph)
    read = [np.where(nodes >= 0, size[nodes], 0) for nodes in (operands.input, operands.kernel)]
    tensors = np.stack([size, *read], axis=1)[graph.configurable]
    return tensors / tensors.sum()
