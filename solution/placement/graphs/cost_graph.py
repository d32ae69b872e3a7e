"""A computation graph with the cost of each operation: the input of everything in this package.

Nodes stand in topological order, and equal programs give equal graphs, however their nodes were
numbered. Nodes are sorted by depth (the longest path to them), nodes of equal depth by colour. A
colour is a hash of the node's content; it is combined with the colours of the neighbours again and
again, until the number of different colours stops growing (Weisfeiler and Leman). Nodes of equal
depth and colour keep their original order.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from solution.domain.codebook import GOLDEN, mix
from solution.domain.neighbours import Neighbours, find_depths
from solution.domain.vocabulary import NUM_OPCODES, OPCODE_IDS
from solution.system.errors import InputError

MAX_ROUNDS = 48


def canonical_order(name: str, content: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the nodes (nodes,) int64 sorted by depth, then by colour, as the module describes.
    `content`: (nodes, columns) float64, properties of nodes. `edges`: rows [consumer, producer].
    Raises InputError if the edges form a cycle."""
    depths = find_depths(edges, len(content))
    if (depths < 0).any():
        stuck = np.flatnonzero(depths < 0)
        raise InputError(
            f"{name}: the graph has a cycle; {len(stuck)} nodes wait for each other, among them "
            f"{', '.join(map(str, stuck[:5]))}. Give a program without cycles."
        )
    return np.lexsort((_colour(content, edges), depths))


def _colour(content: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return Weisfeiler-Leman hashes (nodes,) uint64 of each node's content and surroundings."""
    colours = np.zeros(len(content), np.uint64)
    for column in content.T:
        colours = mix(colours * GOLDEN + np.ascontiguousarray(column + 0.0).view(np.uint64), 0)
    distinct = 0
    # new colour = hash(colour, sum of producers' hashed colours, sum of consumers' hashed colours)
    for _ in range(MAX_ROUNDS):
        found = len(np.unique(colours))
        if found in (distinct, len(content)):
            break
        distinct = found
        read, reading = np.zeros_like(colours), np.zeros_like(colours)
        np.add.at(read, edges[:, 0], mix(colours[edges[:, 1]] + np.uint64(1), 0))
        np.add.at(reading, edges[:, 1], mix(colours[edges[:, 0]] + np.uint64(2), 0))
        colours = mix(colours * GOLDEN + mix(read, 0) * np.uint64(3) + reading, 0)
    return colours


# Integers up to this number are exact in float64; a cost may be at most its square.
MAX_BYTES = 2.0**53
# Fusion kinds. ALONE: never fused. ELEMENTWISE: anywhere in a kernel. REDUCTION: only as a kernel's
# last node. PRODUCT: only as its first node. DATA: runs no kernel.
ALONE, ELEMENTWISE, REDUCTION, PRODUCT, DATA = range(5)
_OPCODES = {
    ELEMENTWISE: """
        abs add and atan2 bitcast-convert broadcast cbrt ceil clamp compare complex convert cosine
        divide exponential exponential-minus-one floor imag is-finite log log-plus-one logistic map
        maximum minimum multiply negate not or popcnt power real reduce-precision remainder reshape
        reverse round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
        shift-right-logical sign sine slice sqrt stochastic-convert subtract tan tanh transpose xor
        """,
    REDUCTION: "reduce",
    PRODUCT: "dot convolution",
    DATA: """
        add-dependency after-all bitcast constant get-tuple-element iota opt-barrier parameter
        partition-id replica-id tuple
        """,
}


def _make_table() -> np.ndarray:
    table = np.full(NUM_OPCODES, ALONE, np.uint8)
    for kind, names in _OPCODES.items():
        table[[OPCODE_IDS[name] for name in names.split()]] = kind
    return table


FUSION_KINDS = _make_table()  # (opcodes,) uint8: fusion kind of each opcode, ALONE if it is unknown


@dataclass(frozen=True, eq=False)
class CostGraph:
    """A program to be placed, made by `build_cost_graph`; arrays are read-only. A DATA node
    (parameter, constant, tuple) runs no kernel and costs no time. A REDUCTION may only be the last
    node of a fusion, a PRODUCT (dot, convolution) only the first."""

    name: str
    opcodes: np.ndarray  # (nodes,) uint8, ids of solution.domain.vocabulary
    fusion_kinds: np.ndarray  # (nodes,) uint8: ALONE, ELEMENTWISE, ..., DATA
    operations: np.ndarray  # (nodes,) float64: arithmetic operations
    output_bytes: np.ndarray  # (nodes,) float64: bytes of the output, whole numbers
    resident_bytes: np.ndarray  # (nodes,) float64: bytes held all step, resident output included
    shapes: np.ndarray  # (nodes, 6) float32: dimensions of the output, padded with 0
    element_types: np.ndarray  # (nodes,) uint8: index into vocabulary.ELEMENT_TYPE
    edges: np.ndarray  # (edges, 2) int64, sorted rows [consumer, producer], producer < consumer
    leaders: np.ndarray  # (nodes,) int64: the first of the nodes that must share each node's device
    stages: np.ndarray  # (nodes,) int64: number of the layer or cell; -1: not known
    numbers: np.ndarray  # (nodes,) int64: the node's number before nodes were sorted

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled graph. Pickling loses that arrays are read-only, and numba would
        compile all functions again for writable ones."""
        vars(self).update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        return f"CostGraph({self.name}, {self.num_nodes:,} nodes, {len(self.edges):,} edges)"

    @property
    def num_nodes(self) -> int:
        return len(self.opcodes)

    @cached_property
    def producers(self) -> Neighbours:
        """The nodes that each node reads, as adjacency lists (class Neighbours)."""
        return Neighbours.operands(self.edges, self.num_nodes)

    @cached_property
    def consumers(self) -> Neighbours:
        """The nodes that read each node, as adjacency lists (class Neighbours)."""
        return Neighbours.consumers(self.edges, self.num_nodes)

    def neighbours(self, node: int) -> np.ndarray:
        """Return the node's producers, then its consumers."""
        return np.concatenate([self.producers.at(node), self.consumers.at(node)])

    @cached_property
    def traffic_bytes(self) -> np.ndarray:
        """Bytes (nodes,) that each node's kernel reads and writes if it is not fused."""
        read = np.bincount(
            self.edges[:, 0], self.output_bytes[self.edges[:, 1]], minlength=self.num_nodes
        )
        return np.where(self.fusion_kinds == DATA, 0, read + self.output_bytes)

    @cached_property
    def decides_device(self) -> np.ndarray:
        """Mask (nodes,) bool: True for leaders. Other nodes run on the device of their leader."""
        return self.leaders == np.arange(self.num_nodes)

    @cached_property
    def decides_priority(self) -> np.ndarray:
        """Mask (nodes,) bool of the nodes that run a kernel, and so wait for a device."""
        return self.fusion_kinds != DATA

    @cached_property
    def decides_fusion(self) -> np.ndarray:
        """Mask (nodes,) bool of the nodes that may be fused into their consumers."""
        begins = np.isin(self.fusion_kinds, (ELEMENTWISE, PRODUCT))
        return begins & (self.consumers.counts() > 0)


class Columns(NamedTuple):
    """Arrays for `build_cost_graph`, with CostGraph's meanings; nodes may be in any order."""

    opcodes: np.ndarray
    fusion_kinds: np.ndarray
    operations: np.ndarray
    output_bytes: np.ndarray
    resident_bytes: np.ndarray
    shapes: np.ndarray
    element_types: np.ndarray
    stages: np.ndarray


def build_cost_graph(
    name: str, columns: Columns, edges: np.ndarray, ties: np.ndarray | None = None
) -> CostGraph:
    """Sort the nodes topologically and return the graph. Nodes with the same number in `ties`
    (nodes,) share a device. Raises InputError if `edges`, rows [consumer, producer], form a cycle,
    or if a cost is negative, too large or not finite."""
    _check_costs(name, columns)
    count = len(columns.opcodes)
    pairs = np.unique(edges[:, 0] * count + edges[:, 1])
    edges = np.stack([pairs // count, pairs % count], axis=1) if len(pairs) else edges
    content = np.column_stack([*columns[:6], columns.element_types]).astype(np.float64)
    order = canonical_order(name, content, edges)
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    moved = position[edges]
    ordered = Columns(*(np.ascontiguousarray(column[order]) for column in columns))
    return CostGraph(
        name, *ordered[:7], edges=moved[np.lexsort((moved[:, 1], moved[:, 0]))],
        leaders=_find_leaders(np.arange(count) if ties is None else ties[order]),
        stages=ordered.stages, numbers=order,
    )  # fmt: skip


def _check_costs(name: str, columns: Columns) -> None:
    for column in ("operations", "output_bytes", "resident_bytes"):
        values = getattr(columns, column)
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0) & (values <= MAX_BYTES**2)))
        if len(bad):
            raise InputError(
                f"{name}: node {bad[0]} has {values[bad[0]]} {column.replace('_', ' ')}; expected "
                "a number of 0 or more."
            )


def _find_leaders(ties: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(ties, return_index=True, return_inverse=True)
    return first[inverse]
