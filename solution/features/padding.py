"""Restore the -1 padding that the npz files lost.

In the node features, unused slots of a list of dimension numbers hold 0, which is also a valid
dimension. How many slots are used follows from the tensor's rank, and the rank from its shape. So
padding is distinguished from dimension 0 without the regenerated data set that the winners needed.
"""

import dataclasses

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS

PADDING = -1
ONE_DIMENSION = ("concatenate", "iota", "sort", "all-gather", "all-to-all", "reverse")


def _find_ranks(graph: Graph) -> np.ndarray:
    """Return the rank (nodes,) of each output tensor, at most six. It is the number of slots up to
    the last used one of the shape, or of the layout if that is later: a shape may end in a
    dimension of size 0, which looks unused."""
    by_shape = _used_slots(graph.node_features[:, vocabulary.SHAPE_DIMENSIONS])
    highest_axis = graph.node_features[:, vocabulary.NODE_LAYOUT].max(axis=1)
    by_layout = np.where(highest_axis > 0, highest_axis + 1, 0).astype(np.int64)
    ranks = np.minimum(np.maximum(by_shape, by_layout), MAX_RANK)
    ranks.setflags(write=False)
    return ranks


# The rank (nodes,) of each node's output tensor: 0 for scalars and tuples.
tensor_ranks = PerGraph(_find_ranks)


def repair_padding(graph: Graph) -> Graph:
    """Set the unused slots of layouts, `dimensions` and convolution dimension numbers to -1. For a
    tensor of more than six dimensions only the first six are kept."""
    ranks = tensor_ranks(graph)
    features = graph.node_features.copy()
    _leave_out_later(features, graph.node_opcodes)
    is_convolution = graph.node_opcodes == OPCODE_IDS["convolution"]
    spatial = np.where(is_convolution, np.maximum(ranks - 2, 0), 0)
    _pad(features, vocabulary.NODE_LAYOUT, ranks)
    _pad(features, vocabulary.DIMENSIONS, _listed_dimensions(graph, ranks))
    features[~is_convolution, vocabulary.CONVOLUTION_DIMENSIONS] = PADDING
    _pad(features, vocabulary.CONVOLUTION_INPUT_SPATIAL, spatial)
    _pad(features, vocabulary.CONVOLUTION_KERNEL_SPATIAL, spatial)
    return dataclasses.replace(graph, node_features=features)


def erase_padding(graph: Graph) -> Graph:
    """Set the slots that hold -1 after repair_padding to 0 again, as the files have them."""
    features = graph.node_features.copy()
    for columns in vocabulary.DIMENSION_NUMBERS:
        features[:, columns] = np.maximum(features[:, columns], 0)
    return dataclasses.replace(graph, node_features=features)


def _listed_dimensions(graph: Graph, ranks: np.ndarray) -> np.ndarray:
    """Return the number of dimension numbers (nodes,) that each node's `dimensions` lists."""
    # highest rank that a node reads: a reduce also reads a scalar and its computation's root
    read_ranks = np.zeros(graph.num_nodes, np.int64)
    np.maximum.at(read_ranks, graph.edges[:, 0], ranks[graph.edges[:, 1]])
    is_tuple = graph.node_features[:, vocabulary.IS_TUPLE] > 0
    listed = np.zeros(graph.num_nodes, np.int64)
    rules = {
        "transpose": ranks,
        "broadcast": read_ranks,
        # The shape of a reduce of several tensors is a tuple, whose rank is not known.
        "reduce": np.where(is_tuple, 1, np.maximum(read_ranks - ranks, 0)),
        **dict.fromkeys(ONE_DIMENSION, np.ones_like(ranks)),
    }
    for name, count in rules.items():
        listed = np.where(graph.node_opcodes == OPCODE_IDS[name], count, listed)
    # A slot with another number than 0 is always used.
    return np.maximum(listed, _used_slots(graph.node_features[:, vocabulary.DIMENSIONS]))


def _leave_out_later(features: np.ndarray, opcodes: np.ndarray) -> None:
    """Drop the numbers of dimensions after the sixth, in place. Layouts and transposes stay
    permutations: missing dimensions are appended, in descending order for a layout, ascending for a
    transpose. Other lists are filled with 0, as in the files."""
    orders, lists = vocabulary.NODE_LAYOUT, vocabulary.DIMENSIONS
    for columns in (orders, lists):
        for node in np.flatnonzero((features[:, columns] >= MAX_RANK).any(axis=1)):
            kept = [k for k in features[node, columns].astype(np.int64).tolist() if k < MAX_RANK]
            missing = sorted(set(range(MAX_RANK)) - set(kept), reverse=columns == orders)
            if columns == lists and opcodes[node] != OPCODE_IDS["transpose"]:
                missing = [0] * MAX_RANK
            features[node, columns] = (kept + missing)[:MAX_RANK]
    convolution = features[:, vocabulary.CONVOLUTION_DIMENSIONS]
    np.minimum(convolution, MAX_RANK - 1, out=convolution)


def _used_slots(values: np.ndarray) -> np.ndarray:
    """Return the number of slots (nodes,) up to the last one that is not 0."""
    slots = np.arange(1, values.shape[1] + 1)
    return np.where(values != 0, slots, 0).max(axis=1)


def _pad(features: np.ndarray, columns: slice, used: np.ndarray) -> None:
    block = features[:, columns]
    block[np.arange(MAX_RANK)[: block.shape[1]] >= used[:, None]] = PADDING
