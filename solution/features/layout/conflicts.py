"""Where layout constraints on one tensor conflict: that costs a copy.

A configuration may order a tensor several times: as the output of the node that makes it and as
the input or kernel of every node that reads it. A node that works element by element hands an order
on, and so does a transpose, with its dimensions renamed; a copy or a custom call does not, for what
it makes may be ordered anew. Where the orders that are given disagree, the compiler has to copy the
tensor in between, and the cost grows with its size.

Sources: the copies between neighbours are a feature of the competition's 11th place (LightGBM);
what hands an order on are XLA's operations that cannot change a layout
(LayoutAssignment::InstructionCanChangeLayout), and calls: XLA inlines them before it assigns
layouts, and what is called on one tensor and gives one of its shape is an activation. Without
them trees lose 0.025 on layout:xla:default (see the log).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.ragged import offsets
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODE_IDS
from solution.features.operands import NONE, find_operands
from solution.features.padding import tensor_ranks

FEATURES = (
    "constrained",  # 1 where the configuration gives the tensor any order
    "minor_differs",  # 1 where two of the given orders make different dimensions contiguous
    "order_differs",  # 1 where they differ in the two most minor dimensions
)
OUTPUT, INPUT, KERNEL = range(len(LAYOUT_TENSORS))
UNSET = -1
KEEPING = """
abs add all-reduce all-to-all and atan2 bitcast-convert call cbrt ceil clamp collective-permute
compare complex convert cosine count-leading-zeros divide dynamic-slice dynamic-update-slice
exponential exponential-minus-one fft floor imag is-finite log log-plus-one logistic map maximum
minimum multiply negate not or pad popcnt power real reduce-precision reduce-window remainder
reverse round-nearest-afz round-nearest-even rsqrt scatter select select-and-scatter shift-left
shift-right-arithmetic shift-right-logical sign sine slice sort sqrt stochastic-convert subtract tan
tanh triangular-solve xor
"""
KEEPS_ORDER = np.zeros(vocabulary.NUM_OPCODES, bool)  # of an operand that has the same shape
KEEPS_ORDER[[OPCODE_IDS[name] for name in KEEPING.split()]] = True


@dataclass(frozen=True)
class Constraints:
    """The layout constraints on tensors that have several, and what each layout makes of them."""

    nodes: np.ndarray  # (tensors,) int64 the node whose output each tensor is
    starts: np.ndarray  # (tensors,) int64 the first constraint of each
    configurable: np.ndarray  # (constraints,) int64 position of the configurable node that orders
    offsets: np.ndarray  # (constraints,) int64 where its layouts begin in `minor` and `order`
    minor: np.ndarray  # (constraints x layouts of the node,) int8 contiguous dimension, or UNSET
    order: np.ndarray  # (...,) int8 a number for the two most minor dimensions, or UNSET

    def describe(self, codes: np.ndarray) -> np.ndarray:
        """Features (configs, tensors, len(FEATURES)) uint8 of `codes` (configs, configurable).

        The codes are a codebook's: which of its node's layouts a configuration gives it.
        """
        if len(self.nodes) == 0:
            return np.zeros((len(codes), 0, len(FEATURES)), np.uint8)
        entries = codes[:, self.configurable] + self.offsets
        minor, order = self.minor[entries], self.order[entries]
        return np.stack(
            [
                np.maximum.reduceat(minor, self.starts, axis=1) != UNSET,
                self._differ(minor),
                self._differ(order),
            ],
            axis=2,
        ).astype(np.uint8)

    def _differ(self, values: np.ndarray) -> np.ndarray:
        """Whether those of a tensor's `values` (configs, constraints) that are set differ."""
        largest = np.maximum.reduceat(values, self.starts, axis=1)
        given = np.where(values == UNSET, np.int8(np.iinfo(np.int8).max), values)
        return np.minimum.reduceat(given, self.starts, axis=1) < largest


class Constraint(NamedTuple):
    """A configurable node whose layout orders the output tensor of some node."""

    position: int  # among the configurable nodes
    tensor: int  # which of its own tensors that is: OUTPUT, INPUT or KERNEL
    renamed: np.ndarray  # (6,) what the dimensions there are called in the output tensor


def _find_constraints(graph: Graph) -> Constraints:
    """The constraints on every tensor of the graph on which there are at least two."""
    found = sorted(_list_constraints(graph).items())
    several = {node: constraints for node, constraints in found if len(constraints) > 1}
    pairs = [(node, one) for node, constraints in several.items() for one in constraints]
    numbers = [_number_orders(graph, node, one) for node, one in pairs]
    nothing = np.empty(0, np.int8)  # where no tensor has several
    return Constraints(
        nodes=np.array(list(several), np.int64),
        starts=offsets([len(constraints) for constraints in several.values()]),
        configurable=np.array([one.position for _, one in pairs], np.int64),
        offsets=offsets([len(minor) for minor, _ in numbers]),
        minor=np.concatenate([nothing, *(minor for minor, _ in numbers)]),
        order=np.concatenate([nothing, *(order for _, order in numbers)]),
    )


find_constraints = PerGraph(_find_constraints)
SAME_NAMES = np.arange(MAX_RANK)


def _list_constraints(graph: Graph) -> dict[int, list[Constraint]]:
    """What orders the output tensor of each node."""
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
        renamed = _hands_on(graph, producer, consumer)
        if renamed is not None:
            found[consumer].append(Constraint(int(positions[producer]), OUTPUT, renamed))
    return found


def _hands_on(graph: Graph, producer: int, consumer: int) -> np.ndarray | None:
    """What the producer's dimensions (6,) are called in the consumer; None: other dimensions."""
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


def _number_orders(
    graph: Graph, node: int, constraint: Constraint
) -> tuple[np.ndarray, np.ndarray]:
    """The contiguous dimension and the two most minor ones (layouts,) int8 of the node's tensor.

    Under each layout of the configurable node. A dimension of size 1 is passed over: where it
    stands changes nothing in memory.
    """
    sizes = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS]
    first, last = graph.layouts.starts[constraint.position : constraint.position + 2]
    slots = slice(constraint.tensor * MAX_RANK, (constraint.tensor + 1) * MAX_RANK)
    layouts = graph.layouts.layouts[first:last, slots]
    dimensions = constraint.renamed[layouts]  # what is not set, -1, is some dimension here
    counts = (layouts >= 0) & (sizes[dimensions] > 1)
    # Those that count, moved to the front: the minor one, then the second, then whatever is left.
    front = np.argsort(~counts, axis=1, kind="stable")[:, :2]
    minor, second = np.take_along_axis(dimensions, front, axis=1).T
    number = counts.sum(axis=1)
    # Both as one number in base 7; the digit 6 where there is no second one.
    order = minor * (MAX_RANK + 1) + np.where(number > 1, second, MAX_RANK)
    unset = number == 0
    return (
        np.where(unset, UNSET, minor).astype(np.int8),
        np.where(unset, UNSET, order).astype(np.int8),
    )
