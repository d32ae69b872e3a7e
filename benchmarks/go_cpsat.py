"""Solve placement and scheduling with CP-SAT: the optimum of small graphs, a bound for others.

It needs the extra `placement`. The model is the simulator without fusion and memory: every kernel
has a device and a start, a device runs one kernel at a time, a tensor crosses each link at most
once, and a link carries one transfer at a time. Times are integers in units of 1/100,000 of the
mean kernel time, rounded down, so the result is a valid lower bound. The simulator then runs the
solver's devices and order, and may start a kernel earlier.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.placement.baselines.lists import find_tasks, rank_by_start
from solution.placement.graphs.cost_graph import DATA
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from solution.system.wording import how_to_install

UNITS = 100_000  # units of time in the mean kernel's seconds


@dataclass(frozen=True, eq=False)
class Solution:
    """A decision of the solver, and the bound it proved."""

    decision: Decision
    bound: float  # seconds that no decision without fusion can beat
    is_proven: bool


def solve(
    environment: Environment, seconds: float, start: Decision | None = None, workers: int = 1
) -> Solution:
    """Search for at most `seconds` seconds.

    Args:
        start: a decision to begin with, such as HEFT's.

    Raises InputError if ortools is not installed or the solver found no solution.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InputError(f"ortools is not installed. {how_to_install('placement')}.") from error
    model = _Model(environment, cp_model.CpModel())
    if start is not None:
        model.hint(environment.timeline(start))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InputError(
            f"{environment.graph.name}: CP-SAT found no solution in {seconds:g} seconds."
        )
    decision = model.read(solver)
    bound = solver.best_objective_bound * model.unit
    return Solution(decision, bound, status == cp_model.OPTIMAL)


class _Model:
    def __init__(self, environment: Environment, model: Any) -> None:
        self.environment, self.model = environment, model
        graph, machine = environment.graph, environment.machine
        self.tasks = find_tasks(graph, machine)
        kernels = self.tasks.seconds[graph.fusion_kinds != DATA]
        self.unit = float(kernels.mean()) / UNITS if len(kernels) else 1e-9
        self.lengths = np.floor(self.tasks.seconds / self.unit).astype(int)
        self.transfers = np.floor(self.tasks.transfer / self.unit).astype(int)
        self.horizon = int(self.lengths.max(axis=1).sum() + self.transfers.sum() * len(machine))
        self.on = [
            [model.new_bool_var("") for _ in machine.devices] for _ in range(graph.num_nodes)
        ]
        self.start = [model.new_int_var(0, self.horizon, "") for _ in range(graph.num_nodes)]
        self.end = [model.new_int_var(0, self.horizon, "") for _ in range(graph.num_nodes)]
        self._run_kernels()
        self._send_tensors()
        last = model.new_int_var(0, self.horizon, "")
        model.add_max_equality(last, self.end)
        model.minimize(last)

    def _run_kernels(self) -> None:
        graph, model = self.environment.graph, self.model
        busy: list[list[Any]] = [[] for _ in self.environment.machine.devices]
        for node in range(graph.num_nodes):
            model.add_exactly_one(self.on[node])
            for device, here in enumerate(self.on[node]):
                length = int(self.lengths[node, device])
                model.add(self.end[node] == self.start[node] + length).only_enforce_if(here)
                model.add(here == self.on[int(graph.leaders[node])][device])
                if graph.fusion_kinds[node] != DATA:
                    busy[device].append(model.new_optional_interval_var(
                        self.start[node], length, self.end[node], here, ""))  # fmt: skip
        for intervals in busy:
            model.add_no_overlap(intervals)

    def _send_tensors(self) -> None:
        graph, model, devices = self.environment.graph, self.model, len(self.environment.machine)
        links: dict[tuple[int, int], list[Any]] = {}
        start, of = graph.consumers
        for node in range(graph.num_nodes):
            readers = of[start[node] : start[node + 1]].tolist()
            for reader in readers:
                model.add(self.start[reader] >= self.end[node])
            for target in range(devices if readers else 0):
                for source in range(devices):
                    if source != target:
                        interval = self._send(node, readers, source, target)
                        links.setdefault((source, target), []).append(interval)
        for intervals in links.values():
            model.add_no_overlap(intervals)

    def _send(self, node: int, readers: list[int], source: int, target: int) -> Any:
        """Return the interval of a tensor on a link, present if a reader is on the target."""
        model, length = self.model, int(self.transfers[node])
        begin, present = model.new_int_var(0, self.horizon, ""), model.new_bool_var("")
        model.add(begin >= self.end[node]).only_enforce_if(present)
        for reader in readers:
            both = [self.on[node][source], self.on[reader][target]]
            model.add(self.start[reader] >= begin + length).only_enforce_if(both)
            model.add_bool_or([present, *(lit.negated() for lit in both)])
        return model.new_optional_fixed_size_interval_var(begin, length, present, "")

    def hint(self, line: Any) -> None:
        """Give the solver a simulated timeline as its first solution."""
        for node, device in enumerate(line.placement.tolist()):
            for number, here in enumerate(self.on[node]):
                self.model.add_hint(here, number == device)
            self.model.add_hint(self.start[node], int(line.start[node] / self.unit))

    def read(self, solver: Any) -> Decision:
        """Return the solution's devices, and priorities that keep its order of starts."""
        graph = self.environment.graph
        placement = np.array([[solver.value(here) for here in row] for row in self.on]).argmax(1)
        starts = np.array([solver.value(start) for start in self.start])
        return Decision(placement, rank_by_start(starts), np.zeros(graph.num_nodes, np.int64))
