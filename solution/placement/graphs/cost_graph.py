"""A computation graph with what each operation costs: the value that everything in this room reads.

Nodes stand in topological order, and equal programs give equal graphs however their nodes were
numbered: ties are broken by what a node is and what surrounds it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solution.domain.neighbours import Neighbours
from solution.placement.graphs.ordering import canonical_order
from solution.system.errors import InputError

# How an operation may be fused.
ALONE, ELEMENTWISE, REDUCTION, PRODUCT, DATA = range(5)
MAX_BYTES = 2.0**53  # whole numbers up to here are exact in float64


@dataclass(frozen=True, eq=False)
class CostGraph:
    """A program to be placed. Made by `build_cost_graph`; arrays are read-only.

    A DATA node (parameter, constant, tuple) runs no kernel: it costs no time. REDUCTION may only
    end a fusion, PRODUCT (dot, convolution) only begin it.
    """

    name: str
    opcodes: np.ndarray  # (nodes,) uint8, ids of solution.domain.vocabulary
    fusion_kinds: np.ndarray  # (nodes,) uint8: ALONE ... DATA
    operations: np.ndarray  # (nodes,) float64
    output_bytes: np.ndarray  # (nodes,) float64, whole numbers
    resident_bytes: np.ndarray  # (nodes,) float64: held for the whole step, with the output in it
    shapes: np.ndarray  # (nodes, 6) float32: dimensions of the output, 0 where there is none
    element_types: np.ndarray  # (nodes,) uint8: column of vocabulary.ELEMENT_TYPE
    edges: np.ndarray  # (edges, 2) int64, sorted rows [consumer, producer], producer < consumer
    leaders: np.ndarray  # (nodes,) int64: the first of the nodes that share its device
    stages: np.ndarray  # (nodes,) int64: the layer or cell a person would name; -1: nobody did
    numbers: np.ndarray  # (nodes,) int64: what the node was called where it comes from

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        return f"CostGraph({self.name}, {self.num_nodes:,} nodes, {len(self.edges):,} edges)"

    @property
    def num_nodes(self) -> int:
        return len(self.opcodes)

    @cached_property
    def producers(self) -> Neighbours:
        """What each node reads."""
        return Neighbours.operands(self.edges, self.num_nodes)

    @cached_property
    def consumers(self) -> Neighbours:
        """What reads each node."""
        return Neighbours.consumers(self.edges, self.num_nodes)

    def neighbours(self, node: int) -> np.ndarray:
        """What the node reads, then what reads it."""
        return np.concatenate([self.producers.at(node), self.consumers.at(node)])

    @cached_property
    def traffic_bytes(self) -> np.ndarray:
        """Bytes (nodes,) that each node's kernel reads and writes when it runs alone."""
        read = np.bincount(
            self.edges[:, 0], self.output_bytes[self.edges[:, 1]], minlength=self.num_nodes
        )
        return np.where(self.fusion_kinds == DATA, 0, read + self.output_bytes)

    @cached_property
    def decides_device(self) -> np.ndarray:
        """The nodes (nodes,) bool whose device is decided; the others follow their leader."""
        return self.leaders == np.arange(self.num_nodes)

    @cached_property
    def decides_priority(self) -> np.ndarray:
        """The nodes (nodes,) bool that run a kernel, and so wait for a device."""
        return self.fusion_kinds != DATA

    @cached_property
    def decides_fusion(self) -> np.ndarray:
        """The nodes (nodes,) bool that may be merged into what reads them."""
        begins = np.isin(self.fusion_kinds, (ELEMENTWISE, PRODUCT))
        return begins & (self.consumers.counts() > 0)


class Columns(NamedTuple):
    """What `build_cost_graph` is told of the nodes, in any order; arrays as in CostGraph."""

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
    """Put the nodes into topological order.

    Args:
        edges: (edges, 2) int64, rows [consumer, producer]; a repeated one counts once.
        ties: (nodes,) nodes of one number share a device; by default each has its own.

    Raises:
        InputError: the edges form a cycle, or a cost is no number that may be one.
    """
    _check_costs(name, columns)
    count = len(columns.opcodes)
    pairs = np.unique(edges[:, 0] * count + edges[:, 1])
    edges = np.stack([pairs // count, pairs % count], axis=1) if len(pairs) else edges
    content = np.column_stack([*columns[:6], columns.element_types]).astype(np.float64)
    order = canonical_order(name, content, edges)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    moved = place[edges]
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
