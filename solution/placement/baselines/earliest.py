"""List scheduling, compiled: HEFT and CPoP by insertion, and earliest task first.

As in the papers, links have no queue: a transfer never waits for another transfer. With insertion,
a task goes into the first gap of its device that is long enough.

Sources: Topcuoglu et al., "Performance-effective and low-complexity task scheduling for
heterogeneous computing" (2002), for HEFT and CPoP; Hwang et al., "Scheduling precedence graphs in
systems with interprocessor communication times" (1989), for earliest task first; Jeon et al.,
"Baechi: fast device placement of machine learning graphs" (2020), for m-ETF, which respects memory,
and m-SCT.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain.neighbours import Neighbours


@njit(cache=True, nogil=True)
def update_arrivals(task, in_start, in_of, placement, end, transfer, held, arrivals, needs):
    """Write the task's row of `arrivals` (tasks, devices), seconds at which its inputs arrive on
    each device, and its entry of `needs` (tasks,), bytes that it and its inputs without a device
    need."""
    for device in range(arrivals.shape[1]):
        arrivals[task, device] = find_arrival(
            task, device, in_start, in_of, placement, end, transfer
        )
    needs[task] = held[task]
    for edge in range(in_start[task], in_start[task + 1]):
        if placement[in_of[edge]] < 0:
            needs[task] += held[in_of[edge]]


@njit(cache=True, nogil=True)
def choose_earliest(
    ready, seconds, transfer, leaders, favourite, placement, free, room, arrivals, needs, early
):
    """Return the index in `ready` of the task that can start first, and its device; device -1: no
    task fits into memory. Ties go to the first task, then to the first device.

    A task starts when its inputs have arrived and the device is free; a favourite consumer (m-SCT)
    counts as starting earlier on its producer's device, by the transfer saved. `early` is the
    number of tasks in `ready` that may start, or count as starting, before a device is free.
    `free`: (devices,) seconds at which each becomes free. `room`: (devices,) bytes left. For
    `arrivals` and `needs` see update_arrivals, for the other arguments schedule_earliest.
    """
    best_index, best_device, earliest = 0, -1, np.inf
    least = free.min()
    for index in range(ready.size):
        task = ready[index]
        known, liked = placement[leaders[task]], favourite[task]
        for device in range(free.size):
            if known >= 0 and known != device or known < 0 and room[device] < needs[task]:
                continue
            begin = arrivals[task, device]
            if seconds[task, device] > 0:
                begin = max(begin, free[device])
            if liked >= 0 and placement[liked] == device:
                begin -= transfer[liked]
            if begin < earliest:
                best_index, best_device, earliest = index, device, begin
        if early == 0 and earliest <= least:
            # `least` is the time when the first device becomes free; no other task can start before
            break
    return best_index, best_device


@njit(cache=True, nogil=True)
def choose_fallback_device(task, leaders, placement, room):
    """Return the device of a task that fits nowhere: its leader's, or the roomiest."""
    known = placement[leaders[task]]
    return known if known >= 0 else int(np.argmax(room))


@njit(cache=True, nogil=True)
def insert_sorted(ready, count, ranks, task):
    """Insert the task into `ready`, whose first `count` entries are sorted by their `ranks`."""
    at = count
    while at > 0 and ranks[ready[at - 1]] > ranks[task]:
        ready[at] = ready[at - 1]
        at -= 1
    ready[at] = task


@njit(cache=True, nogil=True)
def find_waiting(seconds, in_start, in_of):
    """Return how many producers each task waits for (tasks,); -1 for data without inputs, which
    needs no time and for which no task waits."""
    waiting = np.zeros(len(seconds), np.int64)
    for task in range(len(seconds)):
        if in_start[task] == in_start[task + 1] and seconds[task].max() == 0:
            waiting[task] = -1
            continue
        for edge in range(in_start[task], in_start[task + 1]):
            waiting[task] += waiting[in_of[edge]] >= 0
    return waiting


@njit(cache=True, nogil=True)
def schedule_earliest(
    order, seconds, transfer, in_start, in_of, out_start, out_of, leaders, held, memory, favourite
):
    """Repeatedly schedule the task that can start first; return each task's device, start and end.

    Of equal tasks, the first in `order` is scheduled. For each task: `leaders`, whose device it
    must share; `held`, bytes that it occupies; `favourite`, the producer on whose device it counts
    as starting earlier (-1: none, as in m-ETF). `memory` is in bytes per device.
    """
    tasks, devices = seconds.shape
    placement, start, end = np.full(tasks, -1), np.zeros(tasks), np.zeros(tasks)
    free, room = np.zeros(devices), memory.copy()
    arrivals, needs = np.zeros((tasks, devices)), np.zeros(tasks)
    waiting = find_waiting(seconds, in_start, in_of)
    ready, count, early = np.empty(tasks, np.int64), 0, 0
    ranks, fresh = np.argsort(order), order[waiting[order] == 0]
    while True:
        for task in fresh:
            update_arrivals(task, in_start, in_of, placement, end, transfer, held, arrivals, needs)
            insert_sorted(ready, count, ranks, task)
            count += 1
            early += may_start_early(seconds, favourite, task)
        if count == 0:
            return np.maximum(placement, 0), start, end
        index, best = choose_earliest(
            ready[:count], seconds, transfer, leaders, favourite, placement, free, room, arrivals,
            needs, early,
        )  # fmt: skip
        task = ready[index]
        if best < 0:
            best = choose_fallback_device(task, leaders, placement, room)
        ready[index : count - 1] = ready[index + 1 : count].copy()
        count, waiting[task] = count - 1, -1
        early -= may_start_early(seconds, favourite, task)
        room[best] -= needs[task]
        start[task] = arrivals[task, best]
        if seconds[task, best] > 0:
            start[task] = max(start[task], free[best])
            free[best] = start[task] + seconds[task, best]
        end[task] = start[task] + seconds[task, best]
        data = find_unplaced(task, in_start, in_of, leaders, placement)
        assign_device(task, best, in_start, in_of, leaders, placement)
        for read in data:  # other devices must receive the data from `best`
            for other in out_of[out_start[read] : out_start[read + 1]]:
                if waiting[other] == 0:
                    update_arrivals(
                        other, in_start, in_of, placement, end, transfer, held, arrivals, needs
                    )
        fresh = count_down(waiting, out_of[out_start[task] : out_start[task + 1]])


@njit(cache=True, nogil=True)
def may_start_early(seconds, favourite, task):
    """Return whether a task may start, or count as starting, before a device is free. It may if it
    takes no time on some device, or is a favourite consumer (m-SCT)."""
    return favourite[task] >= 0 or seconds[task].min() == 0


@njit(cache=True, nogil=True)
def count_down(waiting, readers):
    """Decrement `waiting` for each reader of a scheduled task; return the readers now ready."""
    for reader in readers:
        waiting[reader] -= 1
    return readers[waiting[readers] == 0]


@njit(cache=True, nogil=True)
def find_unplaced(task, in_start, in_of, leaders, placement):
    """Return the nodes without a device that get one together with the task: the data that it
    reads, the leaders of these data, and its own leader."""
    reads = in_of[in_start[task] : in_start[task + 1]]
    data = reads[placement[reads] < 0]
    nodes = np.concatenate((data, leaders[data], leaders[task : task + 1]))
    return nodes[placement[nodes] < 0]


class Tasks(NamedTuple):
    """The tasks of a list scheduler, with their costs and edges."""

    seconds: np.ndarray  # (tasks, devices) seconds of each task on each device
    transfer: np.ndarray  # (tasks,) seconds to send a task's output to another device
    producers: Neighbours
    consumers: Neighbours


class Schedule(NamedTuple):
    """The plan of a list scheduler: a device, a start and an end for every task."""

    placement: np.ndarray  # (tasks,) int64: device of each task
    start: np.ndarray  # (tasks,) planned seconds at which each task starts
    end: np.ndarray  # (tasks,) planned seconds at which each task ends


@njit(cache=True, nogil=True)
def rank_upward(mean, transfer, out_start, out_of):
    """Return upward ranks (tasks,): the longest path, in mean seconds, from each task to the end.

    rank(t) = mean(t) + max over consumers c of (transfer(t) + rank(c))
    """
    ranks = np.zeros(mean.size)
    for task in range(mean.size - 1, -1, -1):
        longest = 0.0
        for edge in range(out_start[task], out_start[task + 1]):
            longest = max(longest, transfer[task] + ranks[out_of[edge]])
        ranks[task] = mean[task] + longest
    return ranks


@njit(cache=True, nogil=True)
def rank_downward(mean, transfer, in_start, in_of):
    """Return downward ranks (tasks,): the longest path, in mean seconds, to a task's start.

    rank(t) = max over producers p of (rank(p) + mean(p) + transfer(p))
    """
    ranks = np.zeros(mean.size)
    for task in range(mean.size):
        for edge in range(in_start[task], in_start[task + 1]):
            read = in_of[edge]
            ranks[task] = max(ranks[task], ranks[read] + mean[read] + transfer[read])
    return ranks


@njit(cache=True, nogil=True)
def find_arrival(task, device, in_start, in_of, placement, end, transfer):
    """Return the seconds at which all inputs of the task have arrived on the device."""
    arrival = 0.0
    for edge in range(in_start[task], in_start[task + 1]):
        read = in_of[edge]
        there = end[read]
        if placement[read] >= 0 and placement[read] != device:
            there += transfer[read]
        arrival = max(arrival, there)
    return arrival


@njit(cache=True, nogil=True)
def find_gap(starts, ends, count, arrival, length):
    """Return (index, start): the task's index among the device's `count` sorted busy intervals if
    it fills the first gap of `length` seconds after `arrival`, and its start in seconds."""
    low, high = 0, count
    # binary search for the first interval that ends after the arrival; earlier gaps end too early
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= arrival:
            low = middle + 1
        else:
            high = middle
    begin = arrival if low == 0 else max(arrival, ends[low - 1])
    for interval in range(low, count):
        if begin + length <= starts[interval]:
            return interval, begin
        begin = max(begin, ends[interval])
    return count, begin


@njit(cache=True, nogil=True)
def assign_device(task, device, in_start, in_of, leaders, placement):
    """Assign the device to the task, its leader, and the task's inputs that have no device yet. An
    input whose leader has a device gets the leader's device."""
    placement[task] = placement[leaders[task]] = device
    for edge in range(in_start[task], in_start[task + 1]):
        read = in_of[edge]
        if placement[read] < 0:
            if placement[leaders[read]] < 0:
                placement[leaders[read]] = device
            placement[read] = placement[leaders[read]]


@njit(cache=True, nogil=True)
def schedule_by_insertion(order, seconds, transfer, in_start, in_of, leaders, fixed):
    """Schedule tasks in `order`; return each task's device, start and end in seconds.

    A task runs on the device of its leader (`leaders`) if the leader has one already, else on its
    `fixed` device or, if that is -1, on the device where it ends first. A task without producers
    that takes no time gets its leader's device or, if that is unknown, its first reader's device.
    """
    tasks, devices = seconds.shape
    placement, start, end = np.full(tasks, -1), np.zeros(tasks), np.zeros(tasks)
    starts, ends = np.zeros((devices, tasks)), np.zeros((devices, tasks))
    counts = np.zeros(devices, np.int64)
    for task in order:
        if in_start[task] == in_start[task + 1] and seconds[task].max() == 0:
            continue
        best, best_gap, best_start, best_end = -1, 0, 0.0, np.inf
        known = placement[leaders[task]]
        if known < 0:
            known = fixed[task]
        for device in range(devices):
            if known >= 0 and known != device:
                continue
            length = seconds[task, device]
            arrival = find_arrival(task, device, in_start, in_of, placement, end, transfer)
            gap, begin = 0, arrival
            if length > 0:
                gap, begin = find_gap(starts[device], ends[device], counts[device], arrival, length)
            if begin + length < best_end:
                best, best_gap, best_start, best_end = device, gap, begin, begin + length
        assign_device(task, best, in_start, in_of, leaders, placement)
        start[task], end[task] = best_start, best_end
        if seconds[task, best] > 0:
            count = counts[best]
            starts[best, best_gap + 1 : count + 1] = starts[best, best_gap:count].copy()
            ends[best, best_gap + 1 : count + 1] = ends[best, best_gap:count].copy()
            starts[best, best_gap], ends[best, best_gap] = best_start, best_end
            counts[best] += 1
    return np.maximum(placement, 0), start, end
