"""Simulate a decision once, compiled: fuse nodes, run the event loop, find the critical chain.

Fusion: a node is merged into its readers if they all are in one kernel on its device and the kernel
stays within its limits (MAX_SIZE nodes, one dot or convolution). So only the last node of a kernel
is read by other kernels, and kernels cannot wait for each other: no search for cycles is needed.

The critical chain consists of the kernels and transfers that wait for each other, from the last
kernel that ends back to one that waits for nothing.
"""

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import ELEMENTWISE, PRODUCT, REDUCTION
from solution.placement.simulation.loop import (
    END,
    PEAK,
    START,
    cost_kernels,
    link_members,
    prepare_loop,
    run_events,
)

MAX_SIZE = 64  # maximum number of nodes of a kernel


@njit(cache=True, nogil=True)
def simulate(arrays, placement, groups, priorities):
    """Run the event loop for a decision whose nodes are already fused into kernels (`groups`).

    Returns seconds of the program; peak bytes (devices,); start and end of kernels (nodes,); start
    and end of transfers (transfers, 2); sent tensors (transfers,): node * devices + target device.
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
    used = np.zeros((2, devices))
    for node in range(count):
        used[0, placement[node]] += resident[node]
    used[PEAK] = used[0]
    ended, transfers = run_events(
        nodes, costs, in_start, in_of, out_start, out_of, uses, used,
        np.zeros((devices, devices)), np.array([latency, bandwidth]),
    )  # fmt: skip
    sent, what = np.empty((len(transfers), 2)), np.empty(len(transfers), np.int64)
    for number, (begin, finish, code) in enumerate(transfers):
        sent[number, 0], sent[number, 1], what[number] = begin, finish, code
    return ended, used[PEAK], costs[START], costs[END], sent, what


@njit(cache=True, nogil=True)
def find_chain(groups, placement, devices, start, end, in_start, in_of, sent, what):
    """Return a mask (nodes,) bool: True for nodes of kernels on the critical chain, and for nodes
    whose outputs waited for a link on the chain. For `start`, `end`, `sent` and `what` see the
    results of `simulate`."""
    first, following = link_members(groups)
    before, arrival, ahead = find_waits(groups, placement, devices, start, end, what)
    chain, kernel = np.zeros(groups.size, np.bool_), groups[0]
    for node in range(groups.size):
        if end[groups[node]] > end[kernel]:
            kernel = groups[node]
    # go back from the kernel that ends last, each time to the kernel that it waited for: the
    # previous kernel on its device, a producer on its device, or the first sender in a link's queue
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
    """Follow the link's queue back from `transfer` to the first transfer that did not wait, and
    return the kernel that sent it. Set `chain` for the nodes of the transfers that waited."""
    kernel = groups[what[transfer] // devices]
    while sent[transfer, 0] > end[kernel]:  # as long as the transfer waited for its link
        chain[what[transfer] // devices] = True
        transfer = ahead[transfer]
        kernel = groups[what[transfer] // devices]
    return kernel


@njit(cache=True, nogil=True)
def find_waits(groups, placement, devices, start, end, what):
    """Return three arrays, with -1 for none: the kernel (nodes,) that ran before each kernel on its
    device; the transfer (nodes * devices,) that brought each tensor to each device; the transfer
    (transfers,) before each transfer on its link."""
    before, last = np.full(groups.size, -1), np.full(devices, -1)
    for node in np.argsort(start, kind="mergesort"):
        # leave out data nodes, which take no time on a device
        if groups[node] == node and end[node] > start[node]:
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
    """Return the kernel (nodes,) int64 of each node, named by its last node, from fusion `levels`
    (nodes,) 0 ... num_levels - 1. `start`, `of`: CostGraph.consumers."""
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
