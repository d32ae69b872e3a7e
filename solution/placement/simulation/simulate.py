"""Run the simulator once, compiled: prepare the loop's arrays and run it."""

import numpy as np
from numba import njit

from solution.placement.simulation.loop import run
from solution.placement.simulation.rows import (
    BASE,
    DEVICE,
    END,
    KERNEL,
    PEAK,
    RESIDENT,
    RUNNING,
    SIZE,
    START,
)
from solution.placement.simulation.schedule import cost_kernels, link_members, prepare


@njit(cache=True, nogil=True)
def simulate(arrays, placement, groups, priorities, recording):
    """Return seconds, peaks (devices,), start and end (nodes,) of kernels, and the transfers'
    times."""
    (kinds, operations, bytes_out, resident, in_start, in_of, out_start, out_of, table, latency,
     bandwidth) = arrays  # fmt: skip
    count, devices = kinds.size, len(table)
    first, following = link_members(groups)
    seconds = cost_kernels(
        operations, bytes_out, kinds, first, following, groups, (in_start, in_of),
        (out_start, out_of), table, placement,
    )  # fmt: skip
    waiting, uses, levels = prepare(groups, placement, priorities, in_start, in_of, devices)
    nodes, costs = np.empty((6, count), np.int64), np.zeros((7, count))
    nodes[0], nodes[1], nodes[2], nodes[3], nodes[4] = kinds, groups, placement, first, following
    nodes[5] = waiting
    costs[0], costs[1], costs[2], costs[3] = bytes_out, resident, seconds, levels
    queues, used = np.zeros((3, devices), np.int64), np.zeros((2, devices))
    sends = lay_out(nodes, costs, uses, queues, used)
    log = sends if recording else 0
    sent, what = np.empty((log, 2)), np.empty(log, np.int64)
    ended = run(
        nodes, costs, in_start, in_of, out_start, out_of, uses, used, queues,
        np.empty(count, np.int64), np.zeros((devices, devices)), np.array([latency, bandwidth]),
        np.empty(count + sends), np.empty(count + sends, np.int64), np.zeros(2, np.int64), sent,
        what,
    )  # fmt: skip
    return ended, used[PEAK], costs[START], costs[END], sent, what


@njit(cache=True, nogil=True)
def lay_out(nodes, costs, uses, queues, used):
    """Allocate resident tensors and the kernel heaps; return the number of transfers."""
    sends, devices = 0, used.shape[1]
    for node in range(nodes.shape[1]):
        own = nodes[DEVICE, node]
        used[0, own] += costs[RESIDENT, node]
        queues[SIZE, own] += nodes[KERNEL, node] == node
        for device in range(devices):
            sends += device != own and uses[node * devices + device] > 0
    for device in range(devices):
        if device > 0:
            queues[BASE, device] = queues[BASE, device - 1] + queues[SIZE, device - 1]
    queues[SIZE] = 0
    queues[RUNNING] = -1
    used[PEAK] = used[0]
    return sends
