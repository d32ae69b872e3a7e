"""Trace how the loops of a kernel move along each of its tensors.

A tile is given for one tensor, the tiled tensor. Tracing back from it through the kernel's graph
finds the loop that moves along each dimension of each parameter. This tells which part of each
parameter a tile reads: bytes, cache lines, pages, and the length of contiguous runs. On any machine
with caches these decide how fast a tile is.

An Axis names the loops that move along one dimension; a Walk holds the axes of a tensor.

Each step derives the loops along an operand from the loops along the result. RULES has a rule for
each opcode whose result elements depend on operand elements at other indices. All other opcodes
read the same indices that they write.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operations import find_operands, num_bytes, num_elements, tensor_ranks
from solution.features.tile.tiling import (
    NUM_LOOPS,
    REDUCTION,
    WINDOW,
    Convolved,
    find_convolved,
    find_tiling,
    physical_order,
)


@dataclass(frozen=True)
class Axis:
    """The loops along a dimension of a tensor; without loops, a tile reads the whole dimension."""

    loop: int | None = None
    window: int | None = None  # a loop along a dimension of a convolution's weights
    step: float = 1.0  # elements by which one iteration of `loop` advances
    halo: float = 0.0  # neighbouring elements that an iteration reads as well


Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class Walk:
    """The axes, sizes and strides of one tensor, which tell how a kernel's loops move along it. Its
    dimensions are ordered from major to minor."""

    node: int
    sizes: np.ndarray  # (rank,) float64: elements along each dimension
    strides: np.ndarray  # (rank,) float64: bytes between neighbouring elements of a dimension
    axes: Axes
    element_bytes: float

    def box(self, iterations: np.ndarray) -> np.ndarray:
        """Return the number of elements (configs, rank) that `iterations` (configs, NUM_LOOPS) of
        the loops touch along each dimension."""
        columns = [
            _reach(axis, size, iterations) for axis, size in zip(self.axes, self.sizes, strict=True)
        ]
        return np.stack(columns, axis=1) if columns else np.ones((len(iterations), 0))

    def follows(self) -> np.ndarray:
        """Return a mask (NUM_LOOPS,) bool: True for loops that move along the tensor."""
        found = np.zeros(NUM_LOOPS, bool)
        for axis in self.axes:
            for loop in (axis.loop, axis.window):
                if loop is not None:
                    found[loop] = True
        return found

    def inner_stride(self, loop: int) -> float:
        """Return the bytes between the elements of consecutive iterations of a loop; 0 if the loop
        does not move along the tensor."""
        moved = [
            stride * axis.step
            for axis, stride in zip(self.axes, self.strides, strict=True)
            if axis.loop == loop
        ]
        return float(min(moved)) if moved else 0.0


def _reach(axis: Axis, size: float, iterations: np.ndarray) -> np.ndarray:
    """Return the number of elements (configs,) of a dimension that its loops touch: min(size,
    (steps - 1) * step + window + halo), where `steps` and `window` are the iterations of the loops
    axis.loop and axis.window; without loops, `size`."""
    once = np.ones(len(iterations))
    if axis.loop is None and axis.window is None:
        return once * size
    steps = once if axis.loop is None else iterations[:, axis.loop]
    window = once if axis.window is None else iterations[:, axis.window]
    return np.minimum((steps - 1) * axis.step + window + axis.halo, size)


def step_back(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Return the loops along each dimension of the operand `producer`, given `axes`, the loops
    along each dimension of the result of `node`."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    ranks = tensor_ranks(graph)
    made, read = shapes[node, : ranks[node]], shapes[producer, : ranks[producer]]
    opcode = vocabulary.OPCODES.get(int(graph.node_opcodes[node]), "")
    rule = RULES.get(opcode)
    if rule is not None:
        return rule(graph, node, producer, axes)
    if len(made) == len(read):
        return axes
    return _match_ends(made, read, axes)


def _match_ends(made: np.ndarray, read: np.ndarray, axes: Axes) -> Axes:
    """Return the loops along a reshape's operand, matched by equal sizes from both ends."""
    kept = [dimension for dimension in range(len(made)) if made[dimension] > 1]
    wanted = [dimension for dimension in range(len(read)) if read[dimension] > 1]
    found = [Axis()] * len(read)
    while kept and wanted and made[kept[0]] == read[wanted[0]]:
        found[wanted.pop(0)] = axes[kept.pop(0)]
    while kept and wanted and made[kept[-1]] == read[wanted[-1]]:
        found[wanted.pop()] = axes[kept.pop()]
    return tuple(found)


def _listed(graph: Graph, node: int, count: int) -> list[int]:
    listed = graph.node_features[node, vocabulary.DIMENSIONS][:count].astype(int)
    return [max(0, int(dimension)) for dimension in listed]


def _walk_transpose(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    rank = int(tensor_ranks(graph)[producer])
    found = [Axis()] * rank
    for made, read in enumerate(_listed(graph, node, rank)):
        if read < rank and made < len(axes):
            found[read] = axes[made]
    return tuple(found)


def _walk_broadcast(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    rank = int(tensor_ranks(graph)[producer])
    return tuple(
        axes[dimension] if dimension < len(axes) else Axis()
        for dimension in _listed(graph, node, rank)
    )


def _walk_reduce(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    rank = int(tensor_ranks(graph)[producer])
    if rank < len(axes):  # the operand is the initial value, or the root of the called computation
        return (Axis(),) * rank
    folded = set(_listed(graph, node, rank - len(axes)))
    left = iter(axes)
    return tuple(
        Axis(REDUCTION) if dimension in folded else next(left, Axis()) for dimension in range(rank)
    )


def _walk_dot(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Return the axes of a dot's operand. Its batch dimensions come first. Of its last two, one is
    contracted; the other gets the axis of the result's dimension of equal size."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    rank = int(tensor_ranks(graph)[producer])
    is_left = int(find_operands(graph).input[node]) == producer
    if rank < 2 or len(axes) < 2:
        return (Axis(REDUCTION),) * rank
    kept = axes[-2] if is_left else axes[-1]
    size = shapes[node, len(axes) - (2 if is_left else 1)]
    # axes of batch dimensions; filled up, because the output may have fewer dimensions
    lead = [*axes, *(Axis(),) * rank][: rank - 2]
    found = [*lead, Axis(REDUCTION), Axis(REDUCTION)]
    last = [rank - 2, rank - 1] if is_left else [rank - 1, rank - 2]
    found[next((d for d in last if shapes[producer, d] == size), last[0])] = kept
    return tuple(found)


def _walk_convolution(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Return the axes of a convolution's operand. Only the largest convolution of a kernel has
    loops; operands of other convolutions are read as a whole."""
    rank = int(tensor_ranks(graph)[producer])
    convolved = find_convolved(graph)
    if convolved is None or convolved.node != node or rank != len(axes) or rank == 0:
        return (Axis(),) * rank
    if producer == convolved.weights:
        return _walk_weights(graph, convolved, axes)
    return _walk_image(graph, convolved, producer, axes)


def _walk_weights(graph: Graph, convolved: Convolved, axes: Axes) -> Axes:
    """Return the axes of a convolution's weights. A loop of the result moves along the output
    features; a loop of the sum (`window`) moves along each of the other dimensions."""
    numbers, last = _dimension_numbers(graph, convolved.node, len(axes)), len(axes) - 1
    found = [Axis(window=_loop_of(graph, convolved, d)) for d in range(len(axes))]
    made = min(numbers[vocabulary.CONVOLUTION_OUTPUT_FEATURE], last)
    found[min(numbers[vocabulary.CONVOLUTION_KERNEL_OUTPUT], last)] = axes[made]
    return tuple(found)


def _walk_image(graph: Graph, convolved: Convolved, image: int, axes: Axes) -> Axes:
    """Return the axes of a convolution's image. A loop of the result moves along the batch, a loop
    of the weights along the input features, and both kinds of loops along spatial dimensions."""
    numbers, last = _dimension_numbers(graph, convolved.node, len(axes)), len(axes) - 1
    found = [Axis()] * len(axes)
    for made, read, of_weights in _spatial_dimensions(numbers, len(axes)):
        loop = _loop_of(graph, convolved, of_weights)
        found[read] = Axis(axes[made].loop, loop, _stride(graph, convolved.node, made, image, read))
    batch = min(numbers[vocabulary.CONVOLUTION_INPUT_BATCH], last)
    found[batch] = axes[numbers[vocabulary.CONVOLUTION_OUTPUT_BATCH]]
    feature = min(numbers[vocabulary.CONVOLUTION_INPUT_FEATURE], last)
    of_weights = numbers[vocabulary.CONVOLUTION_KERNEL_INPUT]
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    if shapes[convolved.weights, of_weights] < shapes[image, feature]:
        # A depthwise convolution does not sum over features: an output feature reads one of them.
        found[feature] = axes[min(numbers[vocabulary.CONVOLUTION_OUTPUT_FEATURE], last)]
    else:
        found[feature] = Axis(window=_loop_of(graph, convolved, of_weights))
    return tuple(found)


def _dimension_numbers(graph: Graph, node: int, rank: int) -> np.ndarray:
    """Return the node's features (140,), all clipped to 0 ... rank - 1, so that the features that
    are dimension numbers become valid."""
    return np.clip(graph.node_features[node], 0, rank - 1).astype(int)


def _loop_of(graph: Graph, convolved: Convolved, dimension: int) -> int:
    """Return the loop along a dimension of the weights; loops are numbered from major to minor."""
    positions = np.flatnonzero(physical_order(graph, convolved.weights) == dimension)
    return WINDOW + (int(positions[0]) if len(positions) else 0)


def _spatial_dimensions(numbers: np.ndarray, rank: int) -> Iterator[tuple[int, int, int]]:
    """Yield triples of corresponding spatial dimensions: of output, image and weights."""
    others = (
        numbers[vocabulary.CONVOLUTION_OUTPUT_BATCH],
        numbers[vocabulary.CONVOLUTION_OUTPUT_FEATURE],
    )
    # Files do not name the output's spatial dimensions: they are its other dimensions, in order.
    made = (dimension for dimension in range(rank) if dimension not in others)
    read = numbers[vocabulary.CONVOLUTION_INPUT_SPATIAL]
    of_weights = numbers[vocabulary.CONVOLUTION_KERNEL_SPATIAL]
    return zip(made, read.tolist(), of_weights.tolist(), strict=False)


def _stride(graph: Graph, node: int, made: int, producer: int, read: int) -> float:
    """Return the number of operand elements, at least 1, by which one step along the result's
    dimension moves: floor(operand's size / result's size)."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    return float(max(1.0, np.floor(shapes[producer, read] / max(shapes[node, made], 1))))


def _walk_window(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    rank = int(tensor_ranks(graph)[producer])
    if rank != len(axes):
        return (Axis(),) * rank
    window = graph.node_features[node, vocabulary.WINDOW_SIZE]
    return tuple(
        Axis(
            axis.loop,
            axis.window,
            _stride(graph, node, d, producer, d),
            float(max(window[d], 1) - 1),
        )
        for d, axis in enumerate(axes)
    )


def _walk_slice(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Return the axes of a slice's operand. The elements that the slice drops count as a halo,
    because a stencil reads neighbouring elements by slices of one tensor at several offsets."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    rank = int(tensor_ranks(graph)[producer])
    if rank != len(axes):
        return (Axis(),) * rank
    beyond = shapes[producer, :rank] - shapes[node, :rank]
    halo = np.where((beyond > 0) & (beyond <= MAX_HALO), beyond, 0)
    return tuple(
        Axis(axis.loop, axis.window, axis.step, axis.halo + float(more))
        for axis, more in zip(axes, halo, strict=True)
    )


# a slice that drops more elements than this reads a part of the tensor, not neighbours
MAX_HALO = 16
RULES: dict[str, Callable[[Graph, int, int, Axes], Axes]] = {
    "transpose": _walk_transpose,
    "broadcast": _walk_broadcast,
    "reduce": _walk_reduce,
    "dot": _walk_dot,
    "convolution": _walk_convolution,
    "reduce-window": _walk_window,
    "slice": _walk_slice,
}


def _find_walks(graph: Graph) -> list[Walk]:
    """Return the Walk of the tiled tensor, then of every parameter that is not a scalar."""
    tiling = find_tiling(graph)
    order = physical_order(graph, tiling.node)
    start: list[Axis] = [Axis()] * len(order)
    for loop, dimension in enumerate(order):  # the first loops run along the tiled tensor
        start[dimension] = Axis(loop)
    axes = _trace(graph, tiling.node, tuple(start))
    parameters = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"])
    ranks = tensor_ranks(graph)
    nodes = [tiling.node, *(node for node in parameters.tolist() if node != tiling.node)]
    return [_make_walk(graph, node, axes.get(node)) for node in nodes if ranks[node] > 0]


find_walks = PerGraph(_find_walks)


def _make_walk(graph: Graph, node: int, axes: Axes | None) -> Walk:
    """Return the Walk of a tensor; if `axes` is None, every tile reads the whole tensor."""
    order = physical_order(graph, node)
    dimensions = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    sizes = np.maximum(dimensions[order], 1)
    width = float(num_bytes(graph)[node] / num_elements(graph)[node])
    strides = width * np.append(np.cumprod(sizes[::-1])[::-1][1:], 1.0)
    known = axes or (Axis(),) * len(order)
    return Walk(node, sizes, strides, tuple(known[dimension] for dimension in order), width)


def _trace(graph: Graph, node: int, start: Axes) -> dict[int, Axes]:
    """Return the axes of nodes that `node` is computed from; the first path to a node counts."""
    found = {node: start}
    waiting = [node]
    operands = Neighbours.operands(graph.edges, graph.num_nodes)
    while waiting:
        consumer = waiting.pop(0)
        for producer in np.unique(operands.at(consumer)).tolist():
            if producer not in found and producer != consumer:
                found[producer] = step_back(graph, consumer, producer, found[consumer])
                waiting.append(producer)
    return found
