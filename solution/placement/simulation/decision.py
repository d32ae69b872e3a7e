"""A decision about a program (devices, priorities, fusion levels), and its simulated outcome."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import Machine
from solution.system.errors import InputError

FUSION_LEVELS = 20  # number of levels; a node of level 0 is not fused into its consumers
PRIORITY_LEVELS = 20


@dataclass(frozen=True, eq=False)
class Decision:
    """A device, a priority and a fusion level for every node. A node runs on its leader's device
    (CostGraph.leaders). A device runs the ready kernel of the highest priority; a fused kernel has
    the highest priority of its nodes.

    Nodes are fused into their consumers in order of falling level; within a level, consumers first.
    """

    placement: np.ndarray  # (nodes,) int64: device of each node
    priorities: np.ndarray  # (nodes,) float64: the highest runs first
    fusion: np.ndarray  # (nodes,) int64: levels 0 ... FUSION_LEVELS - 1


class Transfer(NamedTuple):
    """The output of `node`, sent from device `source` to device `target`; times in seconds."""

    node: int
    source: int
    target: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class StepResult:
    """The simulated cost of a decision; `reason` says why it is invalid (None: it is valid)."""

    seconds: float
    # (devices,): maximum number of bytes in each device's memory at any time
    peak_bytes: np.ndarray
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """The simulated course of a decision: start and end of each kernel and each transfer."""

    outcome: StepResult
    placement: np.ndarray  # (nodes,) int64: device of each node, which is its leader's
    groups: np.ndarray  # (nodes,) int64: each node's kernel, identified by its last node
    start: np.ndarray  # (nodes,) float64: seconds at which the node's kernel starts
    end: np.ndarray  # (nodes,) float64: seconds at which the node's kernel ends
    transfers: list[Transfer] = field(default_factory=list)


def default_decision(graph: CostGraph, device: int = 0) -> Decision:
    """Return a decision with all nodes on one device, unfused and with equal priorities."""
    zeros = np.zeros(graph.num_nodes, np.int64)
    return Decision(zeros + device, zeros.astype(np.float64), zeros)


def check_decision(graph: CostGraph, machine: Machine, decision: Decision) -> None:
    """Raise InputError if a shape or a value of the decision does not fit the graph or machine."""
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
