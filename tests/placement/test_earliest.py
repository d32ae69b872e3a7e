"""m-ETF takes the pair of a ready task and a device that starts first, as an obvious one does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.placement.baselines.insertion import Tasks
from solution.placement.baselines.lists import find_favourites, find_tasks, plan_etf, rank_tasks
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import MEMORY, Machine
from tests.placement.made import make_graph, make_unequal_machine


class SlowEtf:
    """The slow and obvious one: every pair is looked at each time, and nothing is remembered."""

    def __init__(
        self, graph: CostGraph, machine: Machine, tasks: Tasks, favourite: list[int]
    ) -> None:
        self.favourite = favourite
        self.tasks, self.leaders = tasks, graph.leaders.tolist()
        self.reads = [
            [int(read) for consumer, read in graph.edges if consumer == task]
            for task in range(graph.num_nodes)
        ]
        self.held = [
            float(own if own > 0 else size / 2)
            for own, size in zip(graph.resident_bytes, graph.output_bytes, strict=True)
        ]
        self.room = machine.table[:, MEMORY].tolist()
        self.free = [0.0] * len(machine)
        self.home: dict[int, int] = {}
        self.start: dict[int, float] = {}
        self.end: dict[int, float] = {}

    def is_data(self, task: int) -> bool:
        return not self.reads[task] and self.tasks.seconds[task].max() == 0

    def begin(self, task: int, device: int) -> float:
        times = [0.0]
        for read in self.reads[task]:
            sent = self.home.get(read, device) != device
            times.append(self.end.get(read, 0.0) + sent * self.tasks.transfer[read])
        if self.tasks.seconds[task, device] > 0:
            times.append(self.free[device])
        return max(times)

    def earlier(self, task: int, device: int) -> float:
        """By how much it counts as starting earlier."""
        liked = self.favourite[task]
        at_home = liked >= 0 and self.home.get(liked) == device
        return float(self.tasks.transfer[liked]) if at_home else 0.0

    def need(self, task: int) -> float:
        return self.held[task] + sum(
            self.held[read] for read in self.reads[task] if read not in self.home
        )

    def settle(self, task: int, device: int) -> None:
        self.room[device] -= self.need(task)
        self.start[task] = self.begin(task, device)
        self.end[task] = self.start[task] + self.tasks.seconds[task, device]
        if self.tasks.seconds[task, device] > 0:
            self.free[device] = self.end[task]
        self.home[task] = self.home[self.leaders[task]] = device
        for read in self.reads[task]:
            if read not in self.home:
                self.home.setdefault(self.leaders[read], device)
                self.home[read] = self.home[self.leaders[read]]

    def run(self) -> None:
        ranks = rank_tasks(self.tasks)
        left = [task for task in range(len(ranks)) if not self.is_data(task)]
        while left:
            ready = [
                task
                for task in left
                if all(read in self.end or self.is_data(read) for read in self.reads[task])
            ]
            pairs = [
                (self.begin(task, device) - self.earlier(task, device), -ranks[task], task, device)
                for task in ready
                for device in range(len(self.room))
                if self.home.get(self.leaders[task], device) == device
                and (self.leaders[task] in self.home or self.room[device] >= self.need(task))
            ]
            if pairs:
                _, _, task, device = min(pairs)
            else:
                task = min(ready, key=lambda task: (-ranks[task], task))
                device = self.home.get(self.leaders[task], int(np.argmax(self.room)))
            self.settle(task, device)
            left.remove(task)


@given(st.integers(0, 100_000), st.integers(1, 40), st.integers(1, 4), st.booleans(),
       st.booleans(), st.sampled_from([1e12, 6e7, 2e7, 1e6]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_etf_is_as_an_obvious_one_says(
    seed: int, count: int, devices: int, tied: bool, favourites: bool, memory: float
) -> None:
    graph = make_graph(count, seed, tied=tied)
    machine = make_unequal_machine(devices, seed, memory)
    tasks = find_tasks(graph, machine)
    favourite = find_favourites(graph, tasks).tolist() if favourites else [-1] * count
    slow = SlowEtf(graph, machine, tasks, favourite)
    slow.run()
    plan = plan_etf(graph, machine, tasks, favourites=favourites)
    assert plan.placement.tolist() == [slow.home.get(task, 0) for task in range(count)]
    assert plan.start.tolist() == [slow.start.get(task, 0.0) for task in range(count)]
    assert plan.end.tolist() == [slow.end.get(task, 0.0) for task in range(count)]
