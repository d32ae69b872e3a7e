"""Count the work of each operation: elements, bytes, floating-point operations."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operands import find_operands, terms_of_dots


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


def _contract(graph: Graph) -> np.ndarray:
    """Return the number of terms (nodes,) that each output element sums. For a convolution, this is
    (elements of the kernel) / (output features)."""
    kernel = find_operands(graph).kernel
    right = np.where(kernel >= 0, num_elements(graph)[kernel], 1)
    features = graph.node_features[:, vocabulary.CONVOLUTION_OUTPUT_FEATURE].astype(np.int64)
    shape = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    output_features = np.maximum(shape[np.arange(len(shape)), np.clip(features, 0, 5)], 1)
    convolution = right / output_features
    is_convolution = graph.node_opcodes == OPCODE_IDS["convolution"]
    return _fix(np.where(is_convolution, convolution, terms_of_dots(graph)))


# Number of terms (nodes,) that each output element of a dot or convolution sums, else 1.
contracted_size = PerGraph(_contract)


def num_operations(graph: Graph) -> np.ndarray:
    """Return multiply-adds (nodes,) of dots and convolutions; for other nodes one per element."""
    return num_elements(graph) * np.maximum(contracted_size(graph), 1)


def configurable_shares(graph: Graph) -> np.ndarray:
    """Return each configurable node's share of operations and of bytes (configurable, 2)."""
    operations = num_operations(graph)[graph.configurable]
    size = num_bytes(graph)[graph.configurable]
    return np.stack([operations / operations.sum(), size / size.sum()], axis=1)


def tensor_shares(graph: Graph) -> np.ndarray:
    """Return the bytes of each configurable node's output, input and kernel (configurable, 3), over
    the sum of all these bytes. A copy costs in proportion to the tensor's size."""
    size, operands = num_bytes(graph), find_operands(graph)
    read = [np.where(nodes >= 0, size[nodes], 0) for nodes in (operands.input, operands.kernel)]
    tensors = np.stack([size, *read], axis=1)[graph.configurable]
    return tensors / tensors.sum()


def _fix(values: np.ndarray) -> np.ndarray:
    """Return the array as read-only, because callers share it."""
    values.setflags(write=False)
    return values
