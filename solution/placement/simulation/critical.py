"""Find the critical chain of a decision, compiled.

It is the chain of kernels and transfers that wait for each other, from the last kernel that ends
back to one that waits for nothing.
"""

import numpy as np
from numba import njit

from solution.placement.simulation.schedule import link_members


@njit(cache=True, nogil=True)
def find_chain(groups, placement, devices, start, end, in_start, in_of, sent, what):
    """Return the nodes (nodes,) bool in the chain, or whose tensors it waited for.

    Args:
        groups, start, end: (nodes,) the kernel of each node, identified by its last node; when
            it starts and ends.
        placement: (nodes,) int64.
        sent, what: (transfers, 2) when each begins and ends, and (transfers,) node * devices +
            device, in the order in which they were put on their links.
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
            for place in range(in_start[node], in_start[node + 1]):
                read = in_of[place]
                if groups[read] == last:
                    continue
                if placement[read] == placement[last]:
                    if end[groups[read]] == time:
                        kernel = groups[read]
                        break
                    continue
                transfer = arrival[read * devices + placement[last]]
                if transfer >= 0 and sent[transfer, 1] == time:
                    kernel = follow(transfer, groups, devices, end, sent, what, ahead, chain)
                    break
            node = following[node]
    return chain


@njit(cache=True, nogil=True)
def follow(transfer, groups, devices, end, sent, what, ahead, chain):
    """Return the kernel that sent the first of the transfers that this one queued behind.

    It is the sender of this transfer itself if the link was free.
    """
    kernel = groups[what[transfer] // devices]
    while sent[transfer, 0] > end[kernel]:  # the link was busy
        chain[what[transfer] // devices] = True
        transfer = ahead[transfer]
        kernel = groups[what[transfer] // devices]
    return kernel


@njit(cache=True, nogil=True)
def find_waits(groups, placement, devices, start, end, what):
    """Return the predecessor of each kernel and transfer; -1 for none.

    Returns: the previous kernel (nodes,) on the same device; the transfer (nodes * devices,) of
    each tensor to each device; the previous transfer (transfers,) on the same link.
    """
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
