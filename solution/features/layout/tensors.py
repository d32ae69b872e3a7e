"""Describe what a layout does to the tensors of its node.

A configuration lists the dimensions of a node's output, input and kernel, minor to major. Speed
depends on which dimension becomes contiguous, and how far that is from the program's layout.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.vocabulary import LANES, LAYOUT_TENSORS, MAX_RANK, SUBLANES
from solution.features.operands import find_operands
from solution.features.padding import tensor_ranks

TENSOR_FEATURES = (
    "given",  # 1 if the configuration gives a layout
    "changed",  # 1 if the layout differs from the program's
    "minor_changed",  # 1 if another dimension becomes contiguous
    "minor_size",  # log size of the contiguous dimension
    "minor_ratio",  # log of the contiguous size over the program's contiguous size
    "violation",  # 1 if the largest dimension is not the contiguous one
    "waste",  # log of the size padded to register tiles over the true size
    "distance",  # share of the given slots that differ from the program's
    "size",  # log of the number of elements
    "displacement",  # how far out the program's contiguous dimension moved, 0 to 1
)
FEATURES = tuple(f"{tensor}_{name}" for tensor in LAYOUT_TENSORS for name in TENSOR_FEATURES)


@dataclass(frozen=True)
class Tensors:
    """One kind of tensor (output, input or kernel) of all configurable nodes."""

    sizes: np.ndarray  # (configurable, 6) int64, dimensions; 1 past the rank
    ranks: np.ndarray  # (configurable,) int64, number of dimensions of each tensor
    layouts: np.ndarray  # (configurable, 6) int64, the program's layouts, minor to major


def describe_layouts(graph: Graph, pairs: Codebook) -> np.ndarray:
    """Return features (pairs, len(FEATURES)) float32 of each (node, layout) pair. The operands of
    configurable nodes are read from `graph`, so it must contain their neighbours."""
    node = pairs.node
    blocks = [
        _describe_tensor(
            find_tensors(graph, tensor), node, pairs.layouts[:, _slots(number)].astype(np.int64)
        )
        for number, tensor in enumerate(LAYOUT_TENSORS)
    ]
    return np.concatenate(blocks, axis=1).astype(np.float32)


def _slots(number: int) -> slice:
    return slice(number * MAX_RANK, (number + 1) * MAX_RANK)


def find_tensors(graph: Graph, tensor: str) -> Tensors:
    """Return the output, input or kernel of each configurable node. The rank is 0 if a node has no
    such tensor. `tensor` is one of LAYOUT_TENSORS. The graph must have correct padding
    (repair_padding)."""
    nodes = list_tensors(graph, tensor)
    known = nodes >= 0
    ranks = np.where(known, tensor_ranks(graph)[nodes], 0)
    sizes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS][nodes].astype(np.int64)
    used = (np.arange(MAX_RANK) < ranks[:, None]) & (sizes > 0)
    layouts = graph.node_features[:, vocabulary.NODE_LAYOUT][nodes].astype(np.int64)
    return Tensors(np.where(used, sizes, 1), ranks, np.maximum(layouts, 0))


def list_tensors(graph: Graph, tensor: str) -> np.ndarray:
    """Return the node (configurable,) that computes the output, input or kernel of each node. The
    number is below 0 if a configurable node has no such tensor. `tensor` is one of LAYOUT_TENSORS.
    The graph must have correct padding (repair_padding)."""
    if tensor == "output":
        return graph.configurable
    operands = find_operands(graph)
    return (operands.input if tensor == "input" else operands.kernel)[graph.configurable]


def _describe_tensor(tensors: Tensors, node: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return features (pairs, len(TENSOR_FEATURES)) of a tensor with layouts `slots` (pairs, 6)."""
    sizes, ranks, before = tensors.sizes[node], tensors.ranks[node], tensors.layouts[node]
    said = slots >= 0
    given = said[:, 0]
    # Slots that the configuration leaves open keep the program's dimension.
    effective = np.where(given[:, None] & said, slots, before)
    minor, second = _size_at(sizes, effective[:, 0]), _size_at(sizes, effective[:, 1])
    second = np.where(ranks > 1, second, 1)
    minor_before = _size_at(sizes, before[:, 0])
    differs = said & (slots != before)
    # how far out the program's contiguous dimension moves; outermost if no slot lists it
    position = np.argmax(slots == before[:, :1], axis=1)
    stays = ~(slots == before[:, :1]).any(axis=1)
    moved = np.where(stays, np.maximum(ranks - 1, 0), position) / np.maximum(ranks - 1, 1)
    columns = {
        "given": given,
        "changed": differs.any(axis=1),
        "minor_changed": given & (slots[:, 0] != before[:, 0]),
        "minor_size": np.log(minor),
        "minor_ratio": np.log(minor / minor_before),
        "violation": (sizes.max(axis=1) > minor) & (ranks > 0),
        "waste": np.log(_padding_waste(minor, LANES) * _padding_waste(second, SUBLANES)),
        "distance": differs.sum(axis=1) / np.maximum(said.sum(axis=1), 1),
        "size": np.log(sizes.prod(axis=1)),
        "displacement": np.where(given, np.minimum(moved, 1), 0),
    }
    return np.stack([columns[name] for name in TENSOR_FEATURES], axis=1)


def _size_at(sizes: np.ndarray, dimension: np.ndarray) -> np.ndarray:
    return sizes[np.arange(len(sizes)), dimension]


def _padding_waste(size: np.ndarray, tile: int) -> np.ndarray:
    return np.ceil(size / tile) * tile / size
