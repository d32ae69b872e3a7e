"""Prepare kernels for the event loop: their nodes, costs and dependencies; compiled."""

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import DATA
from solution.placement.machine import BYTES, LAUNCH, OPERATIONS


@njit(cache=True, nogil=True)
def link_members(groups):
    """Return linked lists of each kernel's nodes, in order: the first node, and each node's next
    or -1."""
    count = groups.size
    first, following = np.full(count, -1), np.full(count, -1)
    for node in range(count - 1, -1, -1):
        following[node] = first[groups[node]]
        first[groups[node]] = node
    return first, following


@njit(cache=True, nogil=True)
def cost_kernels(
    operations, bytes_out, kinds, first, following, groups, producers, consumers, table, placement
):
    """Return seconds (nodes,) of the kernel that ends in each node; 0 for nodes that end none.

    A kernel costs its operations, one launch, and only the bytes that cross its border, each tensor
    once.
    """
    in_start, in_of = producers
    out_start, out_of = consumers
    count = groups.size
    seconds = np.zeros(count)
    seen = np.full(count, -1)
    for group in range(count):
        if first[group] < 0 or kinds[group] == DATA:
            continue
        work, traffic = 0.0, 0.0
        node = first[group]
        while node >= 0:
            work += operations[node]
            for place in range(in_start[node], in_start[node + 1]):
                read = in_of[place]
                if groups[read] != group and seen[read] != group:
                    seen[read] = group
                    traffic += bytes_out[read]
            leaves = out_start[node] == out_start[node + 1]
            for place in range(out_start[node], out_start[node + 1]):
                leaves |= groups[out_of[place]] != group
            if leaves:
                traffic += bytes_out[node]
            node = following[node]
        device = table[placement[group]]
        seconds[group] = max(work / device[OPERATIONS], traffic / device[BYTES]) + device[LAUNCH]
    return seconds


@njit(cache=True, nogil=True)
def prepare(groups, placement, priorities, in_start, in_of, num_devices):
    """Return the loop's counters and each kernel's priority, the highest of its nodes.

    Returns:
        waiting (nodes,): edges into each kernel; uses (nodes * devices,): edges from each tensor to
        kernels on each device, on its own device also its transfers; levels (nodes,).
    """
    count = groups.size
    waiting, uses = np.zeros(count, np.int32), np.zeros(count * num_devices, np.int32)
    levels = np.full(count, -np.inf)
    for node in range(count):
        group = groups[node]
        levels[group] = max(levels[group], priorities[node])
        for place in range(in_start[node], in_start[node + 1]):
            read = in_of[place]
            if groups[read] != group:
                waiting[group] += 1
                uses[read * num_devices + placement[group]] += 1
    for node in range(count):
        own, sent = placement[node], 0
        for device in range(num_devices):
            sent += device != own and uses[node * num_devices + device] > 0
        uses[node * num_devices + own] += sent
    return waiting, uses, levels
