"""How the loops of a kernel walk each of its tensors.

The tile is given for the tensor that is cut. Walking from there back through the kernel graph
gives, for every dimension of every parameter, the loop that moves along it; so the part of each
parameter that a tile reads is known: how many bytes, cache lines and pages, and how long its
contiguous runs are. That is what decides how fast a tile is, on any machine with caches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operands import find_operands
from solution.features.padding import tensor_ranks
from solution.features.tile.tiling import (
    NUM_LOOPS,
    REDUCTION,
    WINDOW,
    find_convolved,
    find_tiling,
    physical_order,
)
from solution.features.work import num_bytes, num_elements


@dataclass(frozen=True)
class Axis:
    """Which loops move along one dimension of a tensor. No loop: it is always read whole."""

    loop: int | None = None
    window: int | None = None  # the loop over a convolution's weights
    step: float = 1.0  # elements that one iteration of `loop` moves
    halo: float = 0.0  # elements that an iteration reads beside its own


Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class Walk:
    """How the loops move along one tensor, dimensions from major to minor."""

    node: int
    sizes: np.ndarray  # (rank,) float64
    strides: np.ndarray  # (rank,) float64: bytes between neighbours
    axes: Axes
    element_bytes: float

    def box(self, iterations: np.ndarray) -> np.ndarray:
        """Elements that `iterations` (configs, NUM_LOOPS) touch along each dimension.

        Returns:
            (configs, rank)
        """
        columns = [
            _reach(axis, size, iterations) for axis, size in zip(self.axes, self.sizes, strict=True)
        ]
        return np.stack(columns, axis=1) if columns else np.ones((len(iterations), 0))

    def follows(self) -> np.ndarray:
        """Which loops move along it: (NUM_LOOPS,) bool."""
        found = np.zeros(NUM_LOOPS, bool)
        for axis in self.axes:
            for loop in (axis.loop, axis.window):
                if loop is not None:
                    found[loop] = True
        return found

    def inner_stride(self, loop: int) -> float:
        """Bytes from one iteration of the loop to the next; 0 where it stays."""
        moved = [
            stride * axis.step
            for axis, stride in zip(self.axes, self.strides, strict=True)
            if axis.loop == loop
        ]
        return float(min(moved)) if moved else 0.0


def _reach(axis: Axis, size: float, iterations: np.ndarray) -> np.ndarray:
    once = np.ones(len(iterations))
    if axis.loop is None and axis.window is None:
        return once * size
    steps = once if axis.loop is None else iterations[:, axis.loop]
    window = once if axis.window is None else iterations[:, axis.window]
    return np.minimum((steps - 1) * axis.step + window + axis.halo, size)


def _find_walks(graph: Graph) -> list[Walk]:
    """Of the tensor that is cut, first, and of every parameter that is no scalar."""
    tiling = find_tiling(graph)
    order = physical_order(graph, tiling.node)
    start: list[Axis] = [Axis()] * len(order)
    for loop, dimension in enumerate(order):  # those of the output come first
        start[dimension] = Axis(loop)
    axes = _trace(graph, tiling.node, tuple(start))
    parameters = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"])
    ranks = tensor_ranks(graph)
    nodes = [tiling.node, *(node for node in parameters.tolist() if node != tiling.node)]
    return [_make_walk(graph, node, axes.get(node)) for node in nodes if ranks[node] > 0]


find_walks = PerGraph(_find_walks)


def _make_walk(graph: Graph, node: int, axes: Axes | None) -> Walk:
    """A tensor that was not reached is read whole."""
    order = physical_order(graph, node)
    dimensions = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    sizes = np.maximum(dimensions[order], 1)
    width = float(num_bytes(graph)[node] / num_elements(graph)[node])
    strides = width * np.append(np.cumprod(sizes[::-1])[::-1][1:], 1.0)
    known = axes or (Axis(),) * len(order)
    return Walk(node, sizes, strides, tuple(known[dimension] for dimension in order), width)


def _trace(graph: Graph, node: int, start: Axes) -> dict[int, Axes]:
    """The axes of every node that `node` is computed from, dimensions in their logical order.

    The first way by which a node is reached counts.
    """
    found = {node: start}
    waiting = [node]
    order = np.lexsort((graph.edges[:, 1], graph.edges[:, 0]))
    consumers, producers = graph.edges[order].T
    while waiting:
        consumer = waiting.pop(0)
        first, last = np.searchsorted(consumers, [consumer, consumer + 1])
        for producer in np.unique(producers[first:last]).tolist():
            if producer not in found and producer != consumer:
                found[producer] = _step(graph, consumer, producer, found[consumer])
                waiting.append(producer)
    return found


def _step(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """The axes of what `node` reads from `producer`."""
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
    """Dimensions of a reshape: equal ones from either end are the same, the others unknown."""
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
    if rank < len(axes):  # the initial value, or the root of the computation that it calls
        return (Axis(),) * rank
    folded = set(_listed(graph, node, rank - len(axes)))
    left = iter(axes)
    return tuple(
        Axis(REDUCTION) if dimension in folded else next(left, Axis()) for dimension in range(rank)
    )


def _walk_dot(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Batch dimensions lead; of the last two, the one that is not the sum's is the output's."""
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    rank = int(tensor_ranks(graph)[producer])
    is_left = int(find_operands(graph).input[node]) == producer
    if rank < 2 or len(axes) < 2:
        return (Axis(REDUCTION),) * rank
    kept = axes[-2] if is_left else axes[-1]
    size = shapes[node, len(axes) - (2 if is_left else 1)]
    found = [*axes[: rank - 2], Axis(REDUCTION), Axis(REDUCTION)]
    last = [rank - 2, rank - 1] if is_left else [rank - 1, rank - 2]
    found[next((d for d in last if shapes[producer, d] == size), last[0])] = kept
    return tuple(found[:rank])


def _walk_convolution(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    rank = int(tensor_ranks(graph)[producer])
    convolved = find_convolved(graph)
    if convolved is None or convolved.node != node or rank != len(axes):
        return (Axis(),) * rank
    numbers = np.maximum(graph.node_features[node], 0).astype(int)
    order = physical_order(graph, convolved.weights)
    loop_of = {int(d): WINDOW + position for position, d in enumerate(order)}
    output_feature = int(numbers[vocabulary.CONVOLUTION_OUTPUT_FEATURE])
    output_batch = int(numbers[vocabulary.CONVOLUTION_OUTPUT_BATCH])
    if producer == convolved.weights:
        loops = [Axis(window=loop_of.get(d, WINDOW)) for d in range(rank)]
        loops[min(int(numbers[vocabulary.CONVOLUTION_KERNEL_OUTPUT]), rank - 1)] = axes[
            min(output_feature, rank - 1)
        ]
        return tuple(loops)
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    found = [Axis()] * rank
    spatial = [d for d in range(rank) if d not in (output_feature, output_batch)]
    for slot, made in enumerate(spatial[:4]):
        read = int(numbers[vocabulary.CONVOLUTION_INPUT_SPATIAL][slot])
        kernel = int(numbers[vocabulary.CONVOLUTION_KERNEL_SPATIAL][slot])
        step = max(1.0, np.floor(shapes[producer, read] / max(shapes[node, made], 1)))
        found[read] = Axis(axes[made].loop, loop_of.get(kernel, WINDOW), float(step))
    found[min(int(numbers[vocabulary.CONVOLUTION_INPUT_BATCH]), rank - 1)] = axes[output_batch]
    feature = min(int(numbers[vocabulary.CONVOLUTION_INPUT_FEATURE]), rank - 1)
    of_kernel = int(numbers[vocabulary.CONVOLUTION_KERNEL_INPUT])
    grouped = shapes[convolved.weights, of_kernel] < shapes[producer, feature]
    found[feature] = (
        axes[min(output_feature, rank - 1)]  # a depthwise convolution keeps its features apart
        if grouped
        else Axis(window=loop_of.get(of_kernel, WINDOW))
    )
    return tuple(found)


def _walk_window(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    shapes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    rank = int(tensor_ranks(graph)[producer])
    if rank != len(axes):
        return (Axis(),) * rank
    window = graph.node_features[node, vocabulary.WINDOW_SIZE]
    return tuple(
        Axis(
            axis.loop,
            axis.window,
            float(max(1.0, np.floor(shapes[producer, d] / max(shapes[node, d], 1)))),
            float(max(window[d], 1) - 1),
        )
        for d, axis in enumerate(axes)
    )


def _walk_slice(graph: Graph, node: int, producer: int, axes: Axes) -> Axes:
    """Slices at several offsets are how a stencil reads its neighbours: up to the difference."""
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


MAX_HALO = 16  # a slice that cuts off more than this reads a part, no neighbours
RULES: dict[str, Callable[[Graph, int, int, Axes], Axes]] = {
    "transpose": _walk_transpose,
    "broadcast": _walk_broadcast,
    "reduce": _walk_reduce,
    "dot": _walk_dot,
    "convolution": _walk_convolution,
    "reduce-window": _walk_window,
    "slice": _walk_slice,
}
