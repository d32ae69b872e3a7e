"""The decision about a program, and its simulated outcome."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solution.domain.neighbours import find_depths
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import Machine
from solution.system.errors import InputError

FUSION_LEVELS = 20  # level 0: not fused
PRIORITY_LEVELS = 20


@dataclass(frozen=True, eq=False)
class Decision:
    """A device, a priority and a fusion level for every node.

    A node has its leader's device (CostGraph.leaders). Higher priorities run first; a fusion has
    the highest priority of its nodes. Nodes are fused by falling level; at one level, consumers
    first.
    """

    placement: np.ndarray  # (nodes,) int64
    priorities: np.ndarray  # (nodes,) float64
    fusion: np.ndarray  # (nodes,) int64, 0 ... FUSION_LEVELS - 1


class Transfer(NamedTuple):
    """A tensor that was sent to another device."""

    node: int
    source: int
    target: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class StepResult:
    """The cost of a decision; `reason` says why it is invalid, or is None."""

    seconds: float
    peak_bytes: np.ndarray  # (devices,)
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each kernel and transfer started and ended."""

    outcome: StepResult
    placement: np.ndarray  # (nodes,) int64, followers on their leader's device
    groups: np.ndarray  # (nodes,) int64: the last node of each node's fusion
    start: np.ndarray  # (nodes,) float64 seconds of the node's fusion
    end: np.ndarray  # (nodes,)
    transfers: list[Transfer] = field(default_factory=list)


def default_decision(graph: CostGraph, device: int = 0) -> Decision:
    """Return a decision with all nodes on one device, first come, first served, nothing fused."""
    zeros = np.zeros(graph.num_nodes, np.int64)
    return Decision(zeros + device, zeros.astype(np.float64), zeros)


def check_decision(graph: CostGraph, machine: Machine, decision: Decision) -> None:
    """Raise InputError if the decision does not belong to this graph and machine."""
    expected = (graph.num_nodes,)
    for name in ("placement", "priorities", "fusion"):
        shape = getattr(decision, name).shape
        if shape != expected:
            raise InputError(f"{graph.name}: {name} has shape {shape}, expected {expected}.")
    _check_range(graph, "device", decision.placement, len(machine))
    _check_range(graph, "fusion level", decision.fusion, FUSION_LEVELS)
    if not np.isfinite(decision.priorities).all():
        raise InputError(f"{graph.name}: a priority is no finite number.")


def _check_range(graph: CostGraph, what: str, values: np.ndarray, count: int) -> None:
    bad = np.flatnonzero((values < 0) | (values >= count))
    if len(bad):
        raise InputError(
            f"{graph.name}: node {bad[0]} has the {what} {values[bad[0]]}; there are 0 to "
            f"{count - 1}."
        )


def check_groups(graph: CostGraph, placement: np.ndarray, groups: np.ndarray) -> None:
    """Raise InputError if given fusions `groups` (nodes,) cannot run.

    Each node has the number of its fusion. Rejected are a fusion that is split over devices, one
    with a node that runs no kernel, and fusions that wait for each other.
    """
    placement = placement[graph.leaders]
    names, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(inverse)
    split = np.flatnonzero(placement != placement[first][inverse])
    if len(split):
        node = split[0]
        raise InputError(
            f"{graph.name}: a split fusion: {names[inverse[node]]} has node {node} on device "
            f"{placement[node]} and node {first[inverse[node]]} on device "
            f"{placement[first[inverse[node]]]}. A kernel runs on one device."
        )
    idle = np.flatnonzero((graph.fusion_kinds == DATA) & (sizes[inverse] > 1))
    if len(idle):
        raise InputError(f"{graph.name}: node {idle[0]} runs no kernel and cannot be fused.")
    _check_order(graph, inverse, names)


def _check_order(graph: CostGraph, inverse: np.ndarray, names: np.ndarray) -> None:
    between = inverse[graph.edges]
    between = np.unique(between[between[:, 0] != between[:, 1]], axis=0)
    stuck = np.flatnonzero(find_depths(between, len(names)) < 0)
    if len(stuck):
        shown = ", ".join(str(name) for name in names[stuck[:5]])
        raise InputError(
            f"{graph.name}: the fusions form a cycle; {shown} wait for each other. Take a node "
            "out of one of them."
        )
