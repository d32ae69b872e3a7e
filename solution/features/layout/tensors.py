"""Describe how layouts affect the tensors of their node, and where the layouts of nodes conflict.

A configuration lists the dimensions of a node's output, input and kernel, minor to major. Speed
depends on which dimension becomes contiguous, and how far that is from the program's layout.

A configuration may constrain a tensor several times: as the output of the node that computes it,
and as the input or kernel of each node that reads it. An element-wise operation propagates a
layout, and so does a transpose, which permutes it. A copy or a custom call does not, because
its result may have any layout. If constraints disagree, the compiler must copy the tensor, at a
cost that grows with its size.

Sources: the 11th place of the competition counts copies between neighbours (LightGBM). An operation
propagates layouts if XLA says that it cannot change them (InstructionCanChangeLayout of
LayoutAssignment). Calls propagate as well: XLA inlines them before it assigns layouts, and a call
whose result has its operand's shape is an activation function. If calls did not propagate, trees
would lose 0.025 on layout:xla:default (solution/experiments/LOG.md).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import index_ragged, offsets, starts_of
from solution.domain.vocabulary import LANES, LAYOUT_TENSORS, MAX_RANK, OPCODE_IDS, SUBLANES
from solution.features.operations import NONE, find_operands, tensor_ranks

TENSOR_FEATURES = (
    "given",  # 1 if the configuration gives a layout
    "changed",  # 1 if the layout differs from the program's
    "minor_changed",  # 1 if another dimension becomes contiguous
    "minor_size",  # log size of the contiguous dimension
    "minor_ratio",  # log of the contiguous size over the program's contiguous size
    "violation",  # 1 if the largest dimension is not the contiguous one
    "waste",  # log of the size padded to register tiles over the true size
    "distance",  # share of the slots given by the configuration that differ from the program's
    "size",  # log of the number of elements
    "displacement",  # how far out the program's contiguous dimension moved, 0 to 1
)
FEATURES = tuple(f"{tensor}_{name}" for tensor in LAYOUT_TENSORS for name in TENSOR_FEATURES)

CONFLICTS = (
    "constrained",  # 1 if the configuration gives the tensor any layout
    "minor_differs",  # 1 if two constraints make different dimensions contiguous
    "order_differs",  # 1 if two constraints differ in the two most minor dimensions
)
CONSTRAINED, MINOR_DIFFERS, ORDER_DIFFERS = range(len(CONFLICTS))  # indices into CONFLICTS
OUTPUT, INPUT, KERNEL = range(len(LAYOUT_TENSORS))
UNSET = -1
KEEPING = """
abs add all-reduce all-to-all and atan2 bitcast-convert cbrt ceil clamp collective-permute
compare complex convert cosine count-leading-zeros divide dynamic-slice dynamic-update-slice
exponential exponential-minus-one fft floor imag is-finite log log-plus-one logistic map maximum
minimum multiply negate not or pad popcnt power real reduce-precision reduce-window remainder
reverse round-nearest-afz round-nearest-even rsqrt scatter select select-and-scatter shift-left
shift-right-arithmetic shift-right-logical sign sine slice sort sqrt stochastic-convert subtract tan
tanh triangular-solve xor
"""
# (opcodes,) bool: True if the opcode propagates the layout of an operand of equal shape.
KEEPS_ORDER = np.zeros(vocabulary.NUM_OPCODES, bool)
KEEPS_ORDER[[OPCODE_IDS[name] for name in (*KEEPING.split(), "call")]] = True


@dataclass(frozen=True)
class Tensors:
    """One kind of tensor (output, input or kernel) of all configurable nodes."""

    sizes: np.ndarray  # (configurable, 6) int64, dimensions; 1 past the rank
    ranks: np.ndarray  # (configurable,) int64, number of dimensions of each tensor
    layouts: np.ndarray  # (configurable, 6) int64, the program's layouts, minor to major


def describe_layouts(graph: Graph, pairs: Codebook) -> np.ndarray:
    """Return FEATURES (pairs, len(FEATURES)) float32 of (node, layout) pairs. Pruning must have
    kept the operands of configurable nodes."""
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
    """Return each configurable node's output, input or kernel: `tensor` is one of LAYOUT_TENSORS.
    A node without such a tensor gets rank 0. Padding must be correct."""
    nodes = list_tensors(graph, tensor)
    known = nodes >= 0
    ranks = np.where(known, tensor_ranks(graph)[nodes], 0)
    sizes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS][nodes].astype(np.int64)
    used = (np.arange(MAX_RANK) < ranks[:, None]) & (sizes > 0)
    layouts = graph.node_features[:, vocabulary.NODE_LAYOUT][nodes].astype(np.int64)
    return Tensors(np.where(used, sizes, 1), ranks, np.maximum(layouts, 0))


def list_tensors(graph: Graph, tensor: str) -> np.ndarray:
    """Return for each configurable node the node (configurable,) that computes its output, input or
    kernel; below 0 if it has none. `tensor`: one of LAYOUT_TENSORS. Padding must be correct."""
    if tensor == "output":
        return graph.configurable
    operands = find_operands(graph)
    return (operands.input if tensor == "input" else operands.kernel)[graph.configurable]


def _describe_tensor(tensors: Tensors, node: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return features (pairs, len(TENSOR_FEATURES)) of a tensor with layouts `slots` (pairs, 6)."""
    sizes, ranks, before = tensors.sizes[node], tensors.ranks[node], tensors.layouts[node]
    said = slots >= 0  # True where the configuration gives a dimension
    given = said[:, 0]
    # In slots that the configuration does not give, take the dimension of the program's layout.
    effective = np.where(given[:, None] & said, slots, before)
    minor, second = _size_at(sizes, effective[:, 0]), _size_at(sizes, effective[:, 1])
    second = np.where(ranks > 1, second, 1)
    minor_before = _size_at(sizes, before[:, 0])
    differs = said & (slots != before)
    # position to which the program's contiguous dimension moves; outermost if no slot lists it
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


@dataclass(frozen=True)
class Constraints:
    """Tensors with several layout constraints, and the order that each layout requests: the
    contiguous dimension, and the two most minor dimensions."""

    nodes: np.ndarray  # (tensors,) int64, the node that computes each tensor
    starts: np.ndarray  # (tensors,) int64, the first constraint of each tensor
    configurable: np.ndarray  # (constraints,) int64, constraining node: index in graph.configurable
    # (constraints,) int64, where the layouts of the constraining node start in `minor` and `order`
    offsets: np.ndarray
    # int8, for each constraint one entry per layout of its node: contiguous dimension, or UNSET
    minor: np.ndarray
    # int8, shaped like `minor`: the two most minor dimensions as one number, or UNSET
    order: np.ndarray

    def describe(self, codes: np.ndarray) -> np.ndarray:
        """Return the CONFLICTS (configs, tensors, len(CONFLICTS)) uint8 of the constrained tensors
        under the codebook's `codes` (configs, configurable)."""
        entries = codes[:, self.configurable] + self.offsets
        return describe_orders(self.minor[entries], self.order[entries], self.starts)


@dataclass(frozen=True)
class Ordered:
    """Tensors with several layout constraints, and the tensors whose layouts constrain them."""

    # (tensors,) int64, the node that computes each tensor
    nodes: np.ndarray
    # (tensors + 1,) int64, the first constraint of each tensor; last, the number of constraints
    starts: np.ndarray
    # (constraints,) int64, the constraining node's index among the configurable ones
    configurable: np.ndarray
    # (constraints,) int64, the tensor of that node: OUTPUT, INPUT or KERNEL
    tensor: np.ndarray
    # (constraints, 6) int64: for each dimension of `tensor`, the constrained tensor's dimension
    renamed: np.ndarray
    sizes: np.ndarray  # (constraints, 6) float, sizes of the constrained tensor's dimensions

    def number(self, which: np.ndarray, layouts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the order that each constraint in `which` (n,) requests if its node has the layout
        in `layouts` (n, 18): the contiguous dimension (n,) int8, and the two most minor dimensions
        as a number (n,) int8; UNSET if none is given. Dimensions of size 1 do not count."""
        slots = self.tensor[which, None] * MAX_RANK + np.arange(MAX_RANK)
        given = np.take_along_axis(layouts, slots, axis=1)
        # A slot of -1 (not given) selects an arbitrary dimension here; `counts` excludes it below.
        dimensions = np.take_along_axis(self.renamed[which], given % MAX_RANK, axis=1)
        counts = np.take_along_axis(self.sizes[which], dimensions, axis=1) > 1
        counts &= given >= 0
        # Move dimensions larger than 1 to the front, keeping their order.
        front = np.argsort(~counts, axis=1, kind="stable")[:, :2]
        minor, second = np.take_along_axis(dimensions, front, axis=1).T
        number = counts.sum(axis=1)
        # In base 7: order = 7 * minor + second, with the digit 6 if there is no second dimension.
        order = minor * (MAX_RANK + 1) + np.where(number > 1, second, MAX_RANK)
        unset = number == 0
        return (
            np.where(unset, UNSET, minor).astype(np.int8),
            np.where(unset, UNSET, order).astype(np.int8),
        )

    def under(self, pairs: Codebook) -> Constraints:
        """Return the constraints with the order that each layout in a codebook requests."""
        first, count = pairs.starts[:-1][self.configurable], np.diff(pairs.starts)
        counts = count[self.configurable]
        which, inside = index_ragged(counts)
        minor, order = self.number(which, pairs.layouts[first[which] + inside])
        return Constraints(
            nodes=self.nodes,
            starts=self.starts[:-1],
            configurable=self.configurable,
            offsets=offsets(counts),
            minor=minor,
            order=order,
        )


def describe_orders(minor: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the CONFLICTS (..., tensors, len(CONFLICTS)) uint8 of tensors. `minor`, `order`: (...,
    constraints), the results of Ordered.number; a tensor's constraints begin at `starts`
    (tensors,)."""
    if len(starts) == 0:
        return np.zeros((*minor.shape[:-1], 0, len(CONFLICTS)), np.uint8)
    constrained = np.maximum.reduceat(minor, starts, axis=-1) != UNSET
    found = [constrained, _differ(minor, starts), _differ(order, starts)]
    return np.stack(found, axis=-1).astype(np.uint8)


def _differ(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return a mask (..., tensors): True if a tensor has different `values` (..., constraints), not
    counting UNSET."""
    largest = np.maximum.reduceat(values, starts, axis=-1)
    given = np.where(values == UNSET, np.int8(np.iinfo(np.int8).max), values)
    return np.asarray(np.minimum.reduceat(given, starts, axis=-1) < largest)


class Constraint(NamedTuple):
    """The layout of a configurable node constrains the output tensor of this node, of one of its
    operands, or of a reader that propagates the layout."""

    position: int  # index among the configurable nodes
    tensor: int  # OUTPUT, INPUT or KERNEL: which of the node's tensors
    renamed: np.ndarray  # (6,) for each dimension of `tensor`, the constrained tensor's dimension


def _find_ordered(graph: Graph) -> Ordered:
    """Return the constraints on every tensor that has at least two."""
    found = sorted(_list_constraints(graph).items())
    several = {node: constraints for node, constraints in found if len(constraints) > 1}
    flat = [one for constraints in several.values() for one in constraints]
    nodes, counts = np.array(list(several), np.int64), [*map(len, several.values())]
    sizes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    return Ordered(
        nodes=nodes,
        starts=starts_of(np.array(counts, np.int64)),
        configurable=np.array([one.position for one in flat], np.int64),
        tensor=np.array([one.tensor for one in flat], np.int64),
        renamed=np.array([one.renamed for one in flat], np.int64).reshape(-1, MAX_RANK),
        sizes=sizes[np.repeat(nodes, counts)],
    )


find_ordered = PerGraph(_find_ordered)


def _find_constraints(graph: Graph) -> Constraints:
    return find_ordered(graph).under(graph.layouts)


find_constraints = PerGraph(_find_constraints)
SAME_NAMES = np.arange(MAX_RANK)


def _list_constraints(graph: Graph) -> dict[int, list[Constraint]]:
    """List the constraints on the output tensor of each node."""
    found: dict[int, list[Constraint]] = defaultdict(list)
    operands = find_operands(graph)
    for position, node in enumerate(graph.configurable.tolist()):
        tensors = {OUTPUT: node, INPUT: operands.input[node], KERNEL: operands.kernel[node]}
        for tensor, maker in tensors.items():
            if maker != NONE:
                found[int(maker)].append(Constraint(position, tensor, SAME_NAMES))
    positions = np.full(graph.num_nodes, NONE)
    positions[graph.configurable] = np.arange(len(graph.configurable))
    for consumer, producer in graph.edges[positions[graph.edges[:, 1]] != NONE].tolist():
        if positions[consumer] != NONE:
            continue
        renamed = _map_dimensions(graph, producer, consumer)
        if renamed is not None:
            found[consumer].append(Constraint(int(positions[producer]), OUTPUT, renamed))
    return found


def _map_dimensions(graph: Graph, producer: int, consumer: int) -> np.ndarray | None:
    """Return the consumer's dimension (6,) that corresponds to each dimension of the producer; None
    if the consumer propagates no layout."""
    shape, before = graph.node_features[[consumer, producer], vocabulary.SHAPE_DIMENSIONS]
    if graph.node_opcodes[consumer] != OPCODE_IDS["transpose"]:
        keeps = KEEPS_ORDER[graph.node_opcodes[consumer]] and (shape == before).all()
        return SAME_NAMES if keeps else None
    rank = int(tensor_ranks(graph)[consumer])
    order = graph.node_features[consumer, vocabulary.DIMENSIONS][:rank].astype(np.int64)
    if sorted(order) != list(range(rank)) or (before[order] != shape[:rank]).any():
        return None
    renamed = SAME_NAMES.copy()
    renamed[order] = np.arange(rank)
    return renamed
