"""List schedulers: HEFT, CPoP, m-ETF, m-SCT. Their plans become decisions for the simulator.

As in their papers, they assume that transfers on one link never wait for each other. Data without
inputs, such as a parameter, goes to the device of its first reader. Nodes that must share a device
go to the device of the node that is scheduled first among them.
"""

import heapq
from functools import partial

import numpy as np

from solution.placement.baselines import earliest
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import BYTES, LAUNCH, MEMORY, OPERATIONS, Machine
from solution.placement.simulation.decision import Decision


def find_tasks(graph: CostGraph, machine: Machine) -> earliest.Tasks:
    """Return a list scheduler's tasks: one per node, with its runtimes and its transfer time."""
    transfer = machine.latency + graph.output_bytes / machine.bandwidth
    return earliest.Tasks(cost_alone(graph, machine), transfer, graph.producers, graph.consumers)


def cost_alone(graph: CostGraph, machine: Machine) -> np.ndarray:
    """Return seconds (nodes, devices) of each node on each device, without fusion."""
    table = machine.table
    work = graph.operations[:, None] / table[:, OPERATIONS]
    traffic = graph.traffic_bytes[:, None] / table[:, BYTES]
    seconds: np.ndarray = np.maximum(work, traffic) + table[:, LAUNCH]
    seconds[graph.fusion_kinds == DATA] = 0
    return seconds


def plan_heft(tasks: earliest.Tasks, leaders: np.ndarray | None = None) -> earliest.Schedule:
    """Schedule by HEFT: tasks by falling upward rank, each on the device where it ends first. A
    task may fill a gap between two tasks that were scheduled before."""
    ranks = rank_tasks(tasks)
    return _insert(tasks, _by_rank(ranks), leaders)


def rank_tasks(tasks: earliest.Tasks) -> np.ndarray:
    """Return upward ranks (tasks,) in seconds, from mean times over the devices, as in the paper. A
    transfer counts in full, because the mean is over pairs of different devices; with a single
    device there is no transfer."""
    mean, transfer = _average(tasks)
    return earliest.rank_upward(mean, transfer, *tasks.consumers)


def find_priorities(graph: CostGraph, machine: Machine) -> np.ndarray:
    """Return priorities (nodes,) float64, 0 ... nodes - 1, in the order of the nodes' upward ranks:
    the longer a node's longest path to the end (see rank_upward), the higher its priority."""
    ranks = rank_tasks(find_tasks(graph, machine))
    return np.argsort(np.argsort(ranks, kind="stable")).astype(np.float64)


def _average(tasks: earliest.Tasks) -> tuple[np.ndarray, np.ndarray]:
    return tasks.seconds.mean(axis=1), tasks.transfer * (tasks.seconds.shape[1] > 1)


def plan_cpop(tasks: earliest.Tasks, leaders: np.ndarray | None = None) -> earliest.Schedule:
    """Schedule by CPoP: the critical path goes to the device that runs it fastest. The tasks are
    scheduled when they are ready; the ready task with the largest sum of upward and downward rank
    comes first."""
    mean, transfer = _average(tasks)
    total = earliest.rank_upward(mean, transfer, *tasks.consumers)
    total += earliest.rank_downward(mean, transfer, *tasks.producers)
    path = _follow(tasks, total)
    device = tasks.seconds[path].sum(axis=0).argmin()
    fixed = np.full(len(total), -1)
    fixed[path] = device
    return _insert(tasks, order_by_readiness(tasks, total), leaders, fixed)


def _follow(tasks: earliest.Tasks, total: np.ndarray) -> np.ndarray:
    """Return the tasks (k,) of a critical path, from a task without inputs to one without readers.
    `total`: (tasks,) sum of upward and downward ranks."""
    sources = np.flatnonzero(tasks.producers.counts() == 0)
    path = [int(sources[total[sources].argmax()])]
    while True:
        following = tasks.consumers.at(path[-1])
        if not len(following):
            return np.array(path)
        path.append(int(following[total[following].argmax()]))


def _by_rank(ranks: np.ndarray) -> np.ndarray:
    return np.lexsort((np.arange(len(ranks)), -ranks))


def order_by_readiness(tasks: earliest.Tasks, priority: np.ndarray) -> np.ndarray:
    """Return the tasks (tasks,) in topological order; ready tasks by falling priority."""
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
    tasks: earliest.Tasks,
    order: np.ndarray,
    leaders: np.ndarray | None,
    fixed: np.ndarray | None = None,
) -> earliest.Schedule:
    if fixed is None:
        fixed = np.full(len(order), -1)
    if leaders is None:
        leaders = np.arange(len(order))
    times = tasks.seconds, tasks.transfer, *tasks.producers
    return earliest.Schedule(*earliest.schedule_by_insertion(order, *times, leaders, fixed))


def plan_etf(
    graph: CostGraph, machine: Machine, tasks: earliest.Tasks, *, favourites: bool = False
) -> earliest.Schedule:
    """Schedule by m-ETF: repeatedly choose the ready task that can start first on a device with
    room; ties go to the higher upward rank. If no task fits, the ready task of the highest rank
    goes to the roomiest device.

    With `favourites` it is m-SCT, but favourite consumers come from `find_favourites`, not from a
    linear program with a variable per edge (too many for 80,000 nodes). No device is kept idle for
    a favourite consumer: it counts as starting earlier on its producer's device, by the transfer
    saved.
    """
    held = np.where(graph.resident_bytes > 0, graph.resident_bytes, graph.output_bytes / 2)
    favourite = find_favourites(graph, tasks) if favourites else np.full(graph.num_nodes, -1)
    order = _by_rank(rank_tasks(tasks))
    return earliest.Schedule(
        *earliest.schedule_earliest(
            order, tasks.seconds, tasks.transfer, *tasks.producers, *tasks.consumers, graph.leaders,
            held, machine.table[:, MEMORY].copy(), favourite,
        )
    )  # fmt: skip


def find_favourites(graph: CostGraph, tasks: earliest.Tasks) -> np.ndarray:
    """Return, for each node (nodes,), the producer whose favourite consumer the node is, or -1. A
    producer has at most one favourite, and a node is the favourite of at most one producer. The
    producer with the longest transfer chooses first; each chooses the consumer of the highest
    upward rank that is left."""
    consumers, producers = graph.edges.T
    ranks = rank_tasks(tasks)
    favourite, taken = np.full(graph.num_nodes, -1), np.zeros(graph.num_nodes, bool)
    for edge in np.lexsort((producers, consumers, -ranks[consumers], -tasks.transfer[producers])):
        consumer, producer = consumers[edge], producers[edge]
        if favourite[consumer] < 0 and not taken[producer]:
            favourite[consumer], taken[producer] = producer, True
    return favourite


def decide(graph: CostGraph, plan: earliest.Schedule, *, fused: bool) -> Decision:
    """Return a decision with the plan's devices and order and, if `fused`, every legal fusion."""
    levels = np.full(graph.num_nodes, int(fused))
    return Decision(plan.placement[graph.leaders], rank_by_start(plan.start), levels)


def rank_by_start(starts: np.ndarray) -> np.ndarray:
    """Return priorities (nodes,) float64 that make nodes run in the order of planned starts."""
    order = np.lexsort((np.arange(len(starts)), starts))
    priorities = np.empty(len(starts))
    priorities[order] = np.arange(len(starts), 0, -1)
    return priorities


def list_decisions(graph: CostGraph, machine: Machine, *, fused: bool) -> dict[str, Decision]:
    """Return the four list schedulers' decisions by name; `fused`: with every legal fusion."""
    tasks = find_tasks(graph, machine)
    plans = {
        "heft": partial(plan_heft, tasks, graph.leaders),
        "cpop": partial(plan_cpop, tasks, graph.leaders),
        "m-etf": partial(plan_etf, graph, machine, tasks),
        "m-sct": partial(plan_etf, graph, machine, tasks, favourites=True),
    }
    return {name: decide(graph, plan(), fused=fused) for name, plan in plans.items()}
