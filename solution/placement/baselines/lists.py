"""List schedulers: HEFT, CPoP, m-ETF, m-SCT. Their plans become decisions for the simulator.

They know of no queue on a link, as in their papers. Data that reads nothing, such as a parameter,
goes where it is read first; nodes that share a device go with the first of them.
"""

import heapq
from functools import partial

import numpy as np

from solution.placement.baselines.earliest import schedule_earliest
from solution.placement.baselines.insertion import (
    Plan,
    Tasks,
    rank_downward,
    rank_upward,
    schedule_by_insertion,
)
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import BYTES, LAUNCH, MEMORY, OPERATIONS, Machine
from solution.placement.simulation.decision import Decision


def find_tasks(graph: CostGraph, machine: Machine) -> Tasks:
    """A task a node."""
    transfer = machine.latency + graph.output_bytes / machine.bandwidth
    return Tasks(cost_alone(graph, machine), transfer, graph.producers, graph.consumers)


def cost_alone(graph: CostGraph, machine: Machine) -> np.ndarray:
    """Seconds (nodes, devices) of each node on each device, fused with no other."""
    table = machine.table
    work = graph.operations[:, None] / table[:, OPERATIONS]
    traffic = graph.traffic_bytes[:, None] / table[:, BYTES]
    seconds: np.ndarray = np.maximum(work, traffic) + table[:, LAUNCH]
    seconds[graph.fusion_kinds == DATA] = 0
    return seconds


def plan_heft(tasks: Tasks, leaders: np.ndarray | None = None) -> Plan:
    """Heterogeneous earliest finish time: by falling upward rank, with insertion."""
    ranks = rank_tasks(tasks)
    return _insert(tasks, _by_rank(ranks), leaders)


def rank_tasks(tasks: Tasks) -> np.ndarray:
    """Upward ranks (tasks,) in seconds, of mean times as in the paper: a transfer counts in full,
    the mean over pairs of different devices; on one device there is none."""
    mean, transfer = _average(tasks)
    return rank_upward(mean, transfer, *tasks.consumers)


def rank_places(graph: CostGraph, machine: Machine) -> np.ndarray:
    """Places (nodes,) float64 in the order of upward ranks, as priorities: the highest first."""
    ranks = rank_tasks(find_tasks(graph, machine))
    return np.argsort(np.argsort(ranks, kind="stable")).astype(np.float64)


def _average(tasks: Tasks) -> tuple[np.ndarray, np.ndarray]:
    return tasks.seconds.mean(axis=1), tasks.transfer * (tasks.seconds.shape[1] > 1)


def plan_cpop(tasks: Tasks, leaders: np.ndarray | None = None) -> Plan:
    """Critical path on a processor: the tasks of the longest path on the device that runs it first.

    The others are taken by falling sum of ranks as soon as they are ready.
    """
    mean, transfer = _average(tasks)
    total = rank_upward(mean, transfer, *tasks.consumers)
    total += rank_downward(mean, transfer, *tasks.producers)
    path = _follow(tasks, total)
    device = tasks.seconds[path].sum(axis=0).argmin()
    fixed = np.full(len(total), -1)
    fixed[path] = device
    return _insert(tasks, order_by_readiness(tasks, total), leaders, fixed)


def _follow(tasks: Tasks, total: np.ndarray) -> np.ndarray:
    """A longest path, from a task that reads nothing on."""
    sources = np.flatnonzero(tasks.producers.counts() == 0)
    path = [int(sources[total[sources].argmax()])]
    while True:
        following = tasks.consumers.at(path[-1])
        if not len(following):
            return np.array(path)
        path.append(int(following[total[following].argmax()]))


def _by_rank(ranks: np.ndarray) -> np.ndarray:
    return np.lexsort((np.arange(len(ranks)), -ranks))


def order_by_readiness(tasks: Tasks, priority: np.ndarray) -> np.ndarray:
    """The tasks (tasks,): of those whose producers are taken, always the highest priority next."""
    waiting = tasks.producers.counts().tolist()
    starts, nodes = (part.tolist() for part in tasks.consumers)
    ready = [(-float(priority[t]), t) for t, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, task = heapq.heappop(ready)
        order.append(task)
        for consumer in nodes[starts[task] : starts[task + 1]]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, (-float(priority[consumer]), consumer))
    return np.array(order, np.int64)


def _insert(
    tasks: Tasks, order: np.ndarray, leaders: np.ndarray | None, fixed: np.ndarray | None = None
) -> Plan:
    if fixed is None:
        fixed = np.full(len(order), -1)
    if leaders is None:
        leaders = np.arange(len(order))
    times = tasks.seconds, tasks.transfer, *tasks.producers
    return Plan(*schedule_by_insertion(order, *times, leaders, fixed))


def plan_etf(graph: CostGraph, machine: Machine, tasks: Tasks, *, favourites: bool = False) -> Plan:
    """m-ETF: of all pairs of a ready task and a device with room for it, that which starts first;
    ties by upward rank. Where nothing fits, the highest rank goes where most room is left.

    With `favourites` m-SCT, in two things another than the paper's. It finds each producer's
    favourite consumer by a linear program; here it is that at the end of its heaviest edge, which
    is what rounding leaves where edges are unlike: the program has a variable an edge, too many for
    80,000 nodes. And the paper keeps a device waiting for the favourite of what ran on it last;
    here the favourite counts there as starting earlier, by the transfer that it saves.
    """
    held = np.where(graph.resident_bytes > 0, graph.resident_bytes, graph.output_bytes / 2)
    favourite = find_favourites(graph, tasks) if favourites else np.full(graph.num_nodes, -1)
    order = _by_rank(rank_tasks(tasks))
    return Plan(
        *schedule_earliest(
            order, tasks.seconds, tasks.transfer, *tasks.producers, *tasks.consumers, graph.leaders,
            held, machine.table[:, MEMORY].copy(), favourite,
        )
    )  # fmt: skip


def find_favourites(graph: CostGraph, tasks: Tasks) -> np.ndarray:
    """A producer (nodes,) for each node, or -1: each producer has one favourite, and is one's."""
    consumers, producers = graph.edges.T
    ranks = rank_tasks(tasks)
    favourite, taken = np.full(graph.num_nodes, -1), np.zeros(graph.num_nodes, bool)
    for edge in np.lexsort((producers, consumers, -ranks[consumers], -tasks.transfer[producers])):
        consumer, producer = consumers[edge], producers[edge]
        if favourite[consumer] < 0 and not taken[producer]:
            favourite[consumer], taken[producer] = producer, True
    return favourite


def decide(graph: CostGraph, plan: Plan, *, fused: bool) -> Decision:
    """The plan's devices, its order as priorities, and all fusions or none."""
    levels = np.full(graph.num_nodes, int(fused))
    return Decision(plan.placement[graph.leaders], rank_by_start(plan.start), levels)


def rank_by_start(starts: np.ndarray) -> np.ndarray:
    """Priorities (nodes,) float64 that keep the order of the starts: the first has the highest."""
    order = np.lexsort((np.arange(len(starts)), starts))
    priorities = np.empty(len(starts))
    priorities[order] = np.arange(len(starts), 0, -1)
    return priorities


def list_decisions(graph: CostGraph, machine: Machine, *, fused: bool) -> dict[str, Decision]:
    """What each of the four decides, by name."""
    tasks = find_tasks(graph, machine)
    plans = {
        "heft": partial(plan_heft, tasks, graph.leaders),
        "cpop": partial(plan_cpop, tasks, graph.leaders),
        "m-etf": partial(plan_etf, graph, machine, tasks),
        "m-sct": partial(plan_etf, graph, machine, tasks, favourites=True),
    }
    return {name: decide(graph, plan(), fused=fused) for name, plan in plans.items()}
