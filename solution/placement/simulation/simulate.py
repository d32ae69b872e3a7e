"""Simulate a decision once, compiled: fuse nodes, run the event loop, find the critical chain.

Fusion: a node is merged into its readers if they all are in one kernel on its device and the kernel
stays within its limits (MAX_SIZE nodes, one product). So only the last node of a kernel is read by
other kernels, and kernels cannot wait for each other: no search for cycles is needed.

The critical chain consists of the kernels and transfers that wait for each other, from the last
kernel that ends back to one that waits for nothing.
"""

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import ELEMENTWISE, PRODUCT, REDUCTION
from solution.placement.simulation.loop import (
    BASE,
    DEVICE,
    END,
    KERNEL,
    PEAK,
    RESIDENT,
    RUNNING,
    SIZE,
    START,
    cost_kernels,
    link_members,
    prepare_loop,
    run_events,
)

MAX_SIZE = 64  # maximum number of nodes of a kernel


@njit(cache=True, nogil=True)
def simulate(arrays, placement, groups, priorities, recording):
    """Run the event loop for a decision whose nodes are already fused into kernels (`groups`).

    Returns:
        seconds of the program; peak bytes (devices,); start of each kernel (nodes,); end of each
        kernel (nodes,); start and end of each transfer (transfers, 2); what is sent (transfers,):
        node * devices + target device. Without `recording` the last two are empty.
    """
    (kinds, operations, bytes_out, resident, in_start, in_of, out_start, out_of, table, latency,
     bandwidth) = arrays  # fmt: skip
    count, devices = kinds.size, len(table)
    first, following = link_members(groups)
    seconds = cost_kernels(
        operations, bytes_out, kinds, first, following, groups, (in_start, in_of),
        (out_start, out_of), table, placement,
    )  # fmt: skip
    waiting, uses, levels = prepare_loop(groups, placement, priorities, in_start, in_of, devices)
    nodes, costs = np.empty((6, count), np.int64), np.zeros((7, count))
    nodes[0], nodes[1], nodes[2], nodes[3], nodes[4] = kinds, groups, placement, first, following
    nodes[5] = waiting
    costs[0], costs[1], costs[2], costs[3] = bytes_out, resident, seconds, levels
    queues, used = np.zeros((3, devices), np.int64), np.zeros((2, devices))
    sends = lay_out(nodes, costs, uses, queues, used)
    log = sends if recording else 0
    sent, what = np.empty((log, 2)), np.empty(log, np.int64)
    ended = run_events(
        nodes, costs, in_start, in_of, out_start, out_of, uses, used, queues,
        np.empty(count, np.int64), np.zeros((devices, devices)), np.array([latency, bandwidth]),
        np.empty(count + sends), np.empty(count + sends, np.int64), np.zeros(2, np.int64), sent,
        what,
    )  # fmt: skip
    return ended, used[PEAK], costs[START], costs[END], sent, what


@njit(cache=True, nogil=True)
def lay_out(nodes, costs, uses, queues, used):
    """Allocate resident tensors and the devices' heaps; return the number of transfers."""
    sends, devices = 0, used.shape[1]
    for node in range(nodes.shape[1]):
        home = nodes[DEVICE, node]
        used[0, home] += costs[RESIDENT, node]
        queues[SIZE, home] += nodes[KERNEL, node] == node
        for device in range(devices):
            sends += device != home and uses[node * devices + device] > 0
    for device in range(devices):
        if device > 0:
            queues[BASE, device] = queues[BASE, device - 1] + queues[SIZE, device - 1]
    queues[SIZE] = 0
    queues[RUNNING] = -1
    used[PEAK] = used[0]
    return sends


@njit(cache=True, nogil=True)
def find_chain(groups, placement, devices, start, end, in_start, in_of, sent, what):
    """Return a mask (nodes,) bool: True for nodes on the critical chain.

    The chain consists of the kernels and transfers that wait for each other, up to the last kernel
    that ends. Also True are nodes whose transfers made a transfer of the chain wait for its link.

    Args:
        groups: (nodes,) the kernel of each node, identified by its last node.
        placement: (nodes,) int64.
        start, end: (nodes,) seconds at which the kernel that ends in each node starts and ends.
        sent: (transfers, 2) seconds at which each transfer begins and ends.
        what: (transfers,) node * devices + target device, in the order of queuing on the links.
    """
    first, following = link_members(groups)
    before, arrival, ahead = find_waits(groups, placement, devices, start, end, what)
    chain, kernel = np.zeros(groups.size, np.bool_), groups[0]
    for node in range(groups.size):
        if end[groups[node]] > end[kernel]:
            kernel = groups[node]
    while kernel >= 0 and not chain[kernel]:
        node = first[kernel]
        while node >= 0:
            chain[node] = True
            node = following[node]
        time, blocked = start[kernel], before[kernel]
        if blocked >= 0 and end[blocked] == time:
            kernel = blocked
            continue
        kernel, node, last = -1, first[kernel], kernel
        while node >= 0 and kernel < 0:
            for edge in range(in_start[node], in_start[node + 1]):
                read = in_of[edge]
                if groups[read] == last:
                    continue
                if placement[read] == placement[last]:
                    if end[groups[read]] == time:
                        kernel = groups[read]
                        break
                    continue
                transfer = arrival[read * devices + placement[last]]
                if transfer >= 0 and sent[transfer, 1] == time:
                    kernel = follow_queue(transfer, groups, devices, end, sent, what, ahead, chain)
                    break
            node = following[node]
    return chain


@njit(cache=True, nogil=True)
def follow_queue(transfer, groups, devices, end, sent, what, ahead, chain):
    """Return the kernel that sent the first of the transfers for which `transfer` waited.

    If the link of `transfer` was free, the kernel that sent `transfer` is returned. Otherwise
    `chain` is set to True for the nodes sent by `transfer` and by the transfers it waited for,
    except the first.
    """
    kernel = groups[what[transfer] // devices]
    while sent[transfer, 0] > end[kernel]:  # the link was busy
        chain[what[transfer] // devices] = True
        transfer = ahead[transfer]
        kernel = groups[what[transfer] // devices]
    return kernel


@njit(cache=True, nogil=True)
def find_waits(groups, placement, devices, start, end, what):
    """Return three arrays, each with -1 for none. They are the kernel (nodes,) that ran before each
    kernel on its device; the number (nodes * devices,) of the transfer that brings each tensor to
    each device; and the transfer (transfers,) before each transfer on its link."""
    before, last = np.full(groups.size, -1), np.full(devices, -1)
    for node in np.argsort(start, kind="mergesort"):
        if groups[node] == node and end[node] > start[node]:  # data occupies no device
            before[node] = last[placement[node]]
            last[placement[node]] = node
    arrival, ahead = np.full(groups.size * devices, -1), np.full(what.size, -1)
    links = np.full((devices, devices), -1)
    for transfer in range(what.size):
        source, target = placement[what[transfer] // devices], what[transfer] % devices
        arrival[what[transfer]] = transfer
        ahead[transfer] = links[source, target]
        links[source, target] = transfer
    return before, arrival, ahead


@njit(cache=True, nogil=True)
def visiting_order(levels, num_levels):
    """Return the nodes (k,) with a level > 0 by falling level, consumers first (counting sort)."""
    counts = np.zeros(num_levels + 1, np.int64)
    for node in range(levels.size):
        counts[num_levels - 1 - levels[node] + 1] += 1
    for level in range(num_levels):
        counts[level + 1] += counts[level]
    order = np.empty(counts[num_levels - 1], np.int64)
    for node in range(levels.size - 1, -1, -1):
        if levels[node] > 0:
            bucket = num_levels - 1 - levels[node]
            order[counts[bucket]] = node
            counts[bucket] += 1
    return order


@njit(cache=True, nogil=True)
def find_root(parents, node):
    """Return the last node of a node's kernel (union-find with path halving)."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@njit(cache=True, nogil=True)
def fuse(kinds, start, of, placement, levels, num_levels):
    """Return the kernel (nodes,) int64 of each node, identified by the kernel's last node.

    Args:
        start, of: the consumers of each node (CostGraph.consumers).
        levels: (nodes,) int64 fusion levels, 0 ... num_levels - 1.
    """
    count = kinds.size
    parents = np.arange(count)
    sizes = np.ones(count, np.int64)
    products = np.zeros(count, np.int64)
    for node in range(count):
        products[node] = kinds[node] == PRODUCT
    for node in visiting_order(levels, num_levels):
        if kinds[node] != ELEMENTWISE and kinds[node] != PRODUCT or start[node] == start[node + 1]:
            continue
        target = find_root(parents, of[start[node]])
        legal = placement[target] == placement[node]
        legal &= sizes[node] + sizes[target] <= MAX_SIZE
        legal &= products[node] + products[target] <= 1
        for edge in range(start[node], start[node + 1]):
            if not legal:
                break
            kind = kinds[of[edge]]
            legal = kind in (ELEMENTWISE, REDUCTION) and find_root(parents, of[edge]) == target
        if legal:
            parents[node] = target
            sizes[target] += sizes[node]
            products[target] += products[node]
    for node in range(count):
        parents[node] = find_root(parents, node)
    return parents
