"""Simulate decisions: what a decision costs on a machine. Deterministic, without side effects."""

from typing import Any

import numpy as np

from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import MEMORY, Machine
from solution.placement.simulation.decision import (
    FUSION_LEVELS,
    Decision,
    StepResult,
    Timeline,
    Transfer,
    check_decision,
)
from solution.placement.simulation.simulate import find_chain, fuse, simulate


class Environment:
    """A simulator of decisions for one graph on one machine. Raises InputError for a decision of
    another graph or machine; StepResult.reason says if a device is overfull."""

    def __init__(self, graph: CostGraph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self._arrays = (
            graph.fusion_kinds, graph.operations, graph.output_bytes, graph.resident_bytes,
            *graph.producers, *graph.consumers,
            machine.table, machine.latency, machine.bandwidth,
        )  # fmt: skip

    def runtime(self, decision: Decision) -> StepResult:
        """Return the runtime and the peak memory of the decision, and whether it is valid."""
        check_decision(self.graph, self.machine, decision)
        _, _, found = self._run(decision)
        return self._judge(*found)

    def timeline(self, decision: Decision) -> Timeline:
        """Return when each kernel and transfer starts and ends."""
        check_decision(self.graph, self.machine, decision)
        placement, kernels, found = self._run(decision)
        _, _, start, end, sent, what = found
        devices = len(self.machine)
        transfers = [
            Transfer(
                int(w // devices), int(placement[w // devices]), int(w % devices), *map(float, s)
            )
            for w, s in zip(what, sent, strict=True)
        ]
        outcome = self._judge(*found)
        return Timeline(outcome, placement, kernels, start[kernels], end[kernels], transfers)

    def find_critical(self, decision: Decision) -> np.ndarray:
        """Return the nodes (k,) on the critical chain, which decides the runtime (find_chain)."""
        placement, groups, found = self._run(decision)
        _, _, start, end, sent, what = found
        chain = find_chain(groups, placement, len(self.machine), start, end,
                           *self.graph.producers, sent, what)  # fmt: skip
        return np.flatnonzero(chain)

    def _run(self, decision: Decision) -> tuple[np.ndarray, np.ndarray, tuple[Any, ...]]:
        """Return each node's device (nodes,) and kernel (nodes,), and the result of `simulate`."""
        placement, graph = decision.placement[self.graph.leaders], self.graph
        levels = np.asarray(decision.fusion, np.int64)
        kernels = fuse(graph.fusion_kinds, *graph.consumers, placement, levels, FUSION_LEVELS)
        found = simulate(self._arrays, placement, kernels, decision.priorities)
        return placement, kernels, found

    def _judge(self, seconds: float, peak: np.ndarray, *_: Any) -> StepResult:
        over = np.flatnonzero(peak > self.machine.table[:, MEMORY])
        if not len(over):
            return StepResult(seconds, peak)
        worst = over[0]
        device = self.machine.devices[worst]
        reason = (
            f"device {worst} ({device.name}) is overfull: {peak[worst] / 1e9:.2f} GB of its "
            f"{device.memory_bytes / 1e9:.2f} GB"
        )
        return StepResult(seconds, peak, reason)
