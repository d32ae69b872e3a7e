"""Find the tensor that a tile divides (the tiled tensor), and the tile's size in elements.

The files contain neither. On a CPU a tile counts elements of the kernel's output. On a TPU its two
minor bounds count register tiles (8, 16 or 32 sublanes by 128 lanes, by the element's width), and
if a kernel ends in a reduction, the tile divides the tensor before the reduction. Both are inferred
from the bounds of all candidates, because no bound exceeds the tiled tensor.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import find_depths
from solution.domain.vocabulary import LANES, MAX_RANK, OPCODE_IDS, SUBLANES, TILE_BLOCKS
from solution.features import operations

# Loops are numbered. The loops along the dimensions of the tiled tensor, major to minor, have the
# numbers from 0, the loop of a sum has REDUCTION, loops along convolution weights begin at WINDOW.
REDUCTION = MAX_RANK
WINDOW = MAX_RANK + 1
NUM_LOOPS = 2 * MAX_RANK + 1


@dataclass(frozen=True)
class Tiling:
    """The tiled tensor of a kernel, and how the candidate tiles divide the kernel's loops."""

    node: int  # the node of the tiled tensor
    rank: int  # rank of the tiled tensor; 1 for a scalar
    in_registers: bool  # True if the two minor bounds count register tiles, not elements
    extents: np.ndarray  # (NUM_LOOPS,) float64: iterations of each loop, at least 1
    tiles: np.ndarray  # (configs, NUM_LOOPS) float64: iterations inside a tile, from 1 to extents

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of tiles along each loop: (configs, NUM_LOOPS)."""
        return np.ceil(self.extents / self.tiles)


def _find_tiling(graph: Graph) -> Tiling:
    tiles = graph.tiles.astype(np.float64)
    bounds = tiles[:, TILE_BLOCKS["output"]][:, :MAX_RANK]
    listed = bounds if graph.listed is None else bounds[graph.listed]
    node, in_registers = _find_cut_tensor(graph, listed.max(axis=0))
    extents = np.ones(NUM_LOOPS)
    extents[:MAX_RANK] = physical_sizes(graph, node)
    convolved = find_convolved(graph)
    if convolved is None:
        extents[REDUCTION] = _reduction_length(graph)
    else:
        extents[WINDOW:] = physical_sizes(graph, convolved.weights)
        # Do not count it twice: the loop along the output features is a loop along the output, too.
        extents[WINDOW + convolved.output_position] = 1
    window = tiles[:, TILE_BLOCKS["kernel"]][:, :MAX_RANK]
    if in_registers:
        bounds = bounds * _register_shape(graph, node)
        window = window * _register_shape(graph, node if convolved is None else convolved.weights)
    step = tiles[:, TILE_BLOCKS["input"]][:, :1]
    given = np.concatenate([bounds, step, window], axis=1)
    # `whole`: loops of sums that a tile does not divide, because it has no bound for them
    whole = (given == 0) & (np.arange(NUM_LOOPS) >= REDUCTION)
    tiles = np.clip(np.where(whole, extents, given), 1, extents)
    return Tiling(
        node, max(1, int(operations.tensor_ranks(graph)[node])), in_registers, extents, tiles
    )


find_tiling = PerGraph(_find_tiling)


def output_node(graph: Graph) -> int:
    """Return the node that the kernel writes: the largest tensor without a reader; else, the
    largest element of a tuple without a reader; else, the largest tensor."""
    ranks, elements = operations.tensor_ranks(graph), operations.num_elements(graph)
    consumed = np.zeros(graph.num_nodes, bool)
    consumed[graph.edges[:, 1]] = True
    last = ~consumed
    parts = np.zeros(graph.num_nodes, bool)
    parts[graph.edges[last[graph.edges[:, 0]], 1]] = True
    for candidates in (last & (ranks > 0), parts & (ranks > 0), ranks > 0):
        if candidates.any():
            return int(np.argmax(np.where(candidates, elements, -1)))
    return graph.num_nodes - 1


def physical_sizes(graph: Graph, node: int) -> np.ndarray:
    """Return the sizes (6,) of a node's dimensions, major to minor as in tiles; 1 past the rank."""
    order = physical_order(graph, node)
    sizes = np.ones(MAX_RANK)
    dimensions = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    sizes[: len(order)] = np.maximum(dimensions[order], 1)
    return sizes


def physical_order(graph: Graph, node: int) -> np.ndarray:
    """Return a node's dimensions (rank,) from major to minor."""
    rank = int(operations.tensor_ranks(graph)[node])
    layout = graph.node_features[node, vocabulary.NODE_LAYOUT][:rank].astype(np.int64)
    if sorted(layout) != list(range(rank)):
        return np.arange(rank)
    return layout[::-1]


def _find_cut_tensor(graph: Graph, largest: np.ndarray) -> tuple[int, bool]:
    """Return the tiled node, and True if the bounds count register tiles. `largest`: (6,) the
    largest bounds of all candidates. A node fits if its numbers of register tiles equal the bounds
    or, if no node has equal numbers, if they are not below the bounds. Of several nodes that fit,
    choose the output, then the larger node, then the node further from the inputs. If no node fits,
    the bounds count the output's elements, as on a CPU."""
    output, ranks = output_node(graph), operations.tensor_ranks(graph)
    used = int(np.count_nonzero(largest))
    fits = np.flatnonzero((ranks == used) & (used > 0))
    elements = operations.num_elements(graph)
    ordered = [output] * bool(ranks[output] == used > 0)
    depths = find_depths(graph.edges, graph.num_nodes)
    ordered += fits[np.lexsort((-fits, -depths[fits], -elements[fits]))].tolist()
    registers = {
        node: np.ceil(physical_sizes(graph, node) / _register_shape(graph, node))
        for node in ordered
    }
    for node in ordered:
        if (largest[:used] == registers[node][:used]).all():
            return node, True
    for node in ordered:
        if (largest[:used] <= registers[node][:used]).all():
            return node, True
    return output, False


def _register_shape(graph: Graph, node: int) -> np.ndarray:
    """Return the number of elements (6,) of a register tile along each dimension, major to minor. A
    vector fills all sublanes and lanes of a tile with its one dimension."""
    shape = np.ones(MAX_RANK)
    rank = int(operations.tensor_ranks(graph)[node])
    one_hot = graph.node_features[node, vocabulary.ELEMENT_TYPE]
    width = np.clip(one_hot @ vocabulary.ELEMENT_BYTES, 1, 4)
    sublanes = 4 * SUBLANES // width
    if rank == 1:
        shape[0] = sublanes * LANES
    if rank > 1:
        shape[rank - 2 : rank] = sublanes, LANES
    return shape


def _reduction_length(graph: Graph) -> float:
    """Return the number of terms in the longest sum of a dot or reduce."""
    elements = operations.num_elements(graph)
    read = np.ones(graph.num_nodes)
    np.maximum.at(read, graph.edges[:, 0], elements[graph.edges[:, 1]])
    is_reduce = graph.node_opcodes == OPCODE_IDS["reduce"]
    length = np.where(is_reduce, read / elements, operations.terms_of_dots(graph))
    return max(1.0, float(np.round(length).max()))


@dataclass(frozen=True)
class Convolved:
    """The convolution with the largest weights in a kernel graph."""

    node: int
    weights: int  # node of the weights, which the competition calls the kernel
    output_position: int  # the output features' index among the weights' dimensions, major to minor


def _find_convolved(graph: Graph) -> Convolved | None:
    """Return the convolution with the largest weights; None if no convolution has known weights."""
    weights_of = operations.find_operands(graph).kernel
    is_convolution = graph.node_opcodes == OPCODE_IDS["convolution"]
    nodes = np.flatnonzero(is_convolution & (weights_of != operations.NONE))
    if len(nodes) == 0:
        return None
    node = int(nodes[np.argmax(operations.num_elements(graph)[weights_of[nodes]])])
    weights = int(weights_of[node])
    feature = int(graph.node_features[node, vocabulary.CONVOLUTION_KERNEL_OUTPUT])
    positions = np.flatnonzero(physical_order(graph, weights) == feature)
    return Convolved(node, weights, int(positions[0]) if len(positions) else 0)


find_convolved = PerGraph(_find_convolved)
