"""The event loop of the simulator, compiled: kernels start and end, tensors arrive.

A kernel is a set of fused nodes, with the number of its last node. A tensor is a node's output.
Simultaneous events are ordered by their codes: the end of kernel g has the code g, the arrival of
tensor u on device k has the code nodes + u * devices + k. When no event of that time is left, each
idle device, in order of number, starts its ready kernel of the highest priority; ties go to the
kernel that was ready first, then to the first in topological order.

A kernel's outputs are in memory on its device from its start to the end of their last use, and a
copy on another device from its arrival. Resident bytes (CostGraph.resident_bytes) are in memory all
the time. The sender keeps a tensor until it has arrived.

Functions take a few matrices with named rows, not a record of arrays: numba counts references to
every array of a record at every call, which made the loop 20 times slower. Inlining (forceinline)
removes the remaining counting, which saves 20 to 30% of the loop's time.
"""

from heapq import heappop, heappush

import numpy as np
from numba import njit

from solution.placement.graphs.cost_graph import DATA
from solution.placement.machine import BYTES, LAUNCH, OPERATIONS

# Rows of `nodes`. Each node has its fusion KIND, KERNEL, DEVICE and the NEXT node in its kernel.
# Each kernel has its FIRST node and the number of edges for which it is WAITING.
KIND, KERNEL, DEVICE, FIRST, NEXT, WAITING = range(6)
# Rows of `costs`. Each node has its OUTPUT and RESIDENT bytes. Each kernel has its SECONDS, its
# priority (LEVEL), and the times at which it is READY, starts (START) and ends (END).
OUTPUT, RESIDENT, SECONDS, LEVEL, READY, START, END = range(7)
# Rows of `devices` (2, devices) float64: bytes in use at this time, and the maximum so far.
USED, PEAK = range(2)


@njit(cache=True, nogil=True)
def link_members(groups):
    """Return linked lists of kernels' nodes (nodes,): each kernel's first node, and the next node
    of the same kernel; -1: none."""
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
    """Return seconds (nodes,) of the kernel that ends in each node, else 0: max(operations / peak,
    bytes / bandwidth) + launch; bytes that cross its border count once per tensor."""
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
            for edge in range(in_start[node], in_start[node + 1]):
                read = in_of[edge]
                if groups[read] != group and seen[read] != group:
                    seen[read] = group
                    traffic += bytes_out[read]
            leaves = out_start[node] == out_start[node + 1]
            for edge in range(out_start[node], out_start[node + 1]):
                leaves |= groups[out_of[edge]] != group
            if leaves:
                traffic += bytes_out[node]
            node = following[node]
        device = table[placement[group]]
        seconds[group] = max(work / device[OPERATIONS], traffic / device[BYTES]) + device[LAUNCH]
    return seconds


@njit(cache=True, nogil=True)
def prepare_loop(groups, placement, priorities, in_start, in_of, num_devices):
    """Return three arrays: (nodes,) number of edges into each kernel from other kernels;
    (nodes * devices,) number of uses of each tensor on each device by other kernels, plus one per
    transfer on the producer's device; (nodes,) highest priority of each kernel's nodes."""
    count = groups.size
    waiting, uses = np.zeros(count, np.int32), np.zeros(count * num_devices, np.int32)
    levels = np.full(count, -np.inf)
    for node in range(count):
        group = groups[node]
        levels[group] = max(levels[group], priorities[node])
        for edge in range(in_start[node], in_start[node + 1]):
            read = in_of[edge]
            if groups[read] != group:
                waiting[group] += 1
                uses[read * num_devices + placement[group]] += 1
    for node in range(count):
        home, sent = placement[node], 0
        for device in range(num_devices):
            sent += device != home and uses[node * num_devices + device] > 0
        uses[node * num_devices + home] += sent
    return waiting, uses, levels


@njit(cache=True, nogil=True, forceinline=True)
def held(nodes, costs, node, device):
    """Return the bytes of a node's output on a device; 0 for a resident tensor on its producer's
    device, because the resident bytes contain it."""
    if costs[RESIDENT, node] > 0 and nodes[DEVICE, node] == device:
        return 0.0
    return costs[OUTPUT, node]


@njit(cache=True, nogil=True, forceinline=True)
def take_memory(devices, device, amount):
    """Allocate `amount` bytes on a device, and update the device's peak."""
    devices[USED, device] += amount
    if devices[USED, device] > devices[PEAK, device]:
        devices[PEAK, device] = devices[USED, device]


@njit(cache=True, nogil=True, forceinline=True)
def start_kernel(nodes, costs, out_start, uses, devices, events, kernel, time):
    """Start a kernel: allocate its outputs and push the event of the kernel's end."""
    device = nodes[DEVICE, kernel]
    num_devices = devices.shape[1]
    node = nodes[FIRST, kernel]
    while node >= 0:
        unread = out_start[node] == out_start[node + 1]
        if unread or uses[node * num_devices + device] > 0:
            take_memory(devices, device, held(nodes, costs, node, device))
        node = nodes[NEXT, node]
    costs[START, kernel] = time
    costs[END, kernel] = time + costs[SECONDS, kernel]
    heappush(events, (costs[END, kernel], kernel))


@njit(cache=True, nogil=True, forceinline=True)
def make_ready(nodes, costs, out_start, uses, devices, ready, events, kernel, time):
    """Queue a kernel whose inputs are on its device. A DATA node starts and ends at once."""
    costs[READY, kernel] = time
    if nodes[KIND, kernel] == DATA:
        start_kernel(nodes, costs, out_start, uses, devices, events, kernel, time)
    else:
        heappush(ready[nodes[DEVICE, kernel]], (-costs[LEVEL, kernel], time, kernel))


@njit(cache=True, nogil=True, forceinline=True)
def use_up(nodes, costs, uses, devices, node, device):
    """Count down the uses of a tensor's copy on a device; free its memory after the last use."""
    copy = node * devices.shape[1] + device
    uses[copy] -= 1
    if uses[copy] == 0:
        devices[USED, device] -= held(nodes, costs, node, device)


@njit(cache=True, nogil=True, forceinline=True)
def deliver(nodes, costs, out_start, out_of, uses, devices, ready, events, node, device, time):
    """Handle the arrival of a tensor on a device: its readers' kernels wait for one edge less."""
    for edge in range(out_start[node], out_start[node + 1]):
        reader = out_of[edge]
        kernel = nodes[KERNEL, reader]
        if nodes[DEVICE, reader] == device and kernel != nodes[KERNEL, node]:
            nodes[WAITING, kernel] -= 1
            if nodes[WAITING, kernel] == 0:
                make_ready(nodes, costs, out_start, uses, devices, ready, events, kernel, time)


@njit(cache=True, nogil=True, forceinline=True)
def send_tensor(nodes, costs, uses, devices, links, rates, events, sent, node, time):
    """Queue a tensor on the link to each other device that reads it, in order of devices."""
    home, num_devices = nodes[DEVICE, node], devices.shape[1]
    for device in range(num_devices):
        code = node * num_devices + device
        if device == home or uses[code] == 0:
            continue
        begin = max(time, links[home, device])
        finish = begin + (rates[0] + costs[OUTPUT, node] / rates[1])
        links[home, device] = finish
        heappush(events, (finish, nodes.shape[1] + code))
        sent.append((begin, finish, code))


@njit(cache=True, nogil=True, forceinline=True)
def end_kernel(
    nodes, costs, in_start, in_of, out_start, out_of, uses, devices, running, ready, links, rates,
    events, sent, kernel, time,
):  # fmt: skip
    """End a kernel: send its outputs and release its inputs."""
    device, num_devices = nodes[DEVICE, kernel], devices.shape[1]
    if nodes[KIND, kernel] != DATA:
        running[device] = -1
    node = nodes[FIRST, kernel]
    while node >= 0:
        if out_start[node] == out_start[node + 1]:
            devices[USED, device] -= held(nodes, costs, node, device)
        elif uses[node * num_devices + device] > 0:
            send_tensor(nodes, costs, uses, devices, links, rates, events, sent, node, time)
            deliver(
                nodes, costs, out_start, out_of, uses, devices, ready, events, node, device, time
            )
        for edge in range(in_start[node], in_start[node + 1]):
            if nodes[KERNEL, in_of[edge]] != kernel:
                use_up(nodes, costs, uses, devices, in_of[edge], device)
        node = nodes[NEXT, node]


@njit(cache=True, nogil=True)
def run_events(nodes, costs, in_start, in_of, out_start, out_of, uses, devices, links, rates):
    """Run all events. Return the time of the last one in seconds, and the start, end and
    node * devices + target of each transfer."""
    num_nodes, num_devices, time = nodes.shape[1], devices.shape[1], 0.0
    running = np.full(num_devices, -1)
    # empty lists; numba infers the type of their entries from the expressions
    events, sent = [(0.0, 0) for _ in range(0)], [(0.0, 0.0, 0) for _ in range(0)]
    ready = [[(0.0, 0.0, 0) for _ in range(0)] for _ in range(num_devices)]
    for kernel in range(num_nodes):
        if nodes[KERNEL, kernel] == kernel and nodes[WAITING, kernel] == 0:
            make_ready(nodes, costs, out_start, uses, devices, ready, events, kernel, time)
    while True:
        while len(events) > 0 and events[0][0] == time:
            code = heappop(events)[1]
            if code < num_nodes:
                end_kernel(
                    nodes, costs, in_start, in_of, out_start, out_of, uses, devices, running, ready,
                    links, rates, events, sent, code, time,
                )  # fmt: skip
                continue
            node, device = (code - num_nodes) // num_devices, (code - num_nodes) % num_devices
            take_memory(devices, device, held(nodes, costs, node, device))
            use_up(nodes, costs, uses, devices, node, nodes[DEVICE, node])
            deliver(
                nodes, costs, out_start, out_of, uses, devices, ready, events, node, device, time
            )
        for device in range(num_devices):
            if running[device] < 0 and len(ready[device]) > 0:
                running[device] = heappop(ready[device])[2]
                start_kernel(nodes, costs, out_start, uses, devices, events, running[device], time)
        if len(events) == 0:
            return time, sent
        time = events[0][0]
