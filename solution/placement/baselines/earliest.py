"""Earliest-task-first scheduling, compiled: of ready tasks and devices, the earliest start.

Sources: Hwang et al., "Scheduling precedence graphs in systems with interprocessor communication
times" (1989); Jeon et al., "Baechi: fast device placement of machine learning graphs" (2020), for
its m-ETF, which respects memory, and m-SCT. As in the papers, links have no queue.

HEFT and CPoP as in their paper, where links have no queue.

Source: Topcuoglu et al., "Performance-effective and low-complexity task scheduling for
heterogeneous computing" (2002), with insertion: a task goes into the first gap that is long enough.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain.neighbours import Neighbours


@njit(cache=True, nogil=True)
def survey(task, in_start, in_of, placement, end, transfer, held, arrivals, needs):
    """Set when the task's inputs arrive on each device, and the bytes that it would need there.

    Data that is on no device yet is placed together with the task.
    """
    for device in range(arrivals.shape[1]):
        arrivals[task, device] = find_arrival(
            task, device, in_start, in_of, placement, end, transfer
        )
    needs[task] = held[task]
    for place in range(in_start[task], in_start[task + 1]):
        if placement[in_of[place]] < 0:
            needs[task] += held[in_of[place]]


@njit(cache=True, nogil=True)
def choose(
    ready, seconds, transfer, leaders, favourite, placement, free, room, arrivals, needs, hurried
):
    """Return the index in `ready` and the device of the earliest start; device -1: none fits.

    Ties: the first of `ready`, then the first device.

    Args:
        hurried: number of tasks in `ready` that may start before a device is free.
    """
    best_place, best_device, earliest = 0, -1, np.inf
    least = free.min()
    for place in range(ready.size):
        task = ready[place]
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
                best_place, best_device, earliest = place, device, begin
        if hurried == 0 and earliest <= least:
            break  # no later pair can start before that
    return best_place, best_device


@njit(cache=True, nogil=True)
def choose_anyhow(task, leaders, placement, room):
    """Return a device for a task that fits nowhere: its leader's, or else the one with most
    room."""
    known = placement[leaders[task]]
    return known if known >= 0 else int(np.argmax(room))


@njit(cache=True, nogil=True)
def put_in(ready, count, places, task):
    """Insert the task into `ready`, whose first `count` entries are sorted by `places`."""
    at = count
    while at > 0 and places[ready[at - 1]] > places[task]:
        ready[at] = ready[at - 1]
        at -= 1
    ready[at] = task


@njit(cache=True, nogil=True)
def find_waiting(seconds, in_start, in_of):
    """Return how many producers (tasks,) each task waits for; -1 for data, placed with its first
    reader."""
    waiting = np.zeros(len(seconds), np.int64)
    for task in range(len(seconds)):
        if in_start[task] == in_start[task + 1] and seconds[task].max() == 0:
            waiting[task] = -1
            continue
        for place in range(in_start[task], in_start[task + 1]):
            waiting[task] += waiting[in_of[place]] >= 0
    return waiting


@njit(cache=True, nogil=True)
def schedule_earliest(
    order, seconds, transfer, in_start, in_of, out_start, out_of, leaders, held, memory, favourite
):
    """Repeatedly schedule the task that can start first, on a device with enough room.

    Args:
        order: (tasks,) order in which tasks with equal start times are taken.
        leaders: (tasks,) the task whose device each task shares.
        held: (tasks,) bytes that a task holds; memory: (devices,) bytes.
        favourite: (tasks,) the producer on whose device a task's start counts as earlier, by the
            time of the transfer (m-SCT); -1 for none (m-ETF).
    """
    tasks, devices = seconds.shape
    placement, start, end = np.full(tasks, -1), np.zeros(tasks), np.zeros(tasks)
    free, room = np.zeros(devices), memory.copy()
    arrivals, needs = np.zeros((tasks, devices)), np.zeros(tasks)
    waiting = find_waiting(seconds, in_start, in_of)
    ready, count, hurried = np.empty(tasks, np.int64), 0, 0
    places, fresh = np.argsort(order), order[waiting[order] == 0]
    while True:
        for task in fresh:
            survey(task, in_start, in_of, placement, end, transfer, held, arrivals, needs)
            put_in(ready, count, places, task)
            count += 1
            hurried += may_hurry(seconds, favourite, task)
        if count == 0:
            return np.maximum(placement, 0), start, end
        place, best = choose(
            ready[:count], seconds, transfer, leaders, favourite, placement, free, room, arrivals,
            needs, hurried,
        )  # fmt: skip
        task = ready[place]
        if best < 0:
            best = choose_anyhow(task, leaders, placement, room)
        ready[place : count - 1] = ready[place + 1 : count].copy()
        count, waiting[task] = count - 1, -1
        hurried -= may_hurry(seconds, favourite, task)
        room[best] -= needs[task]
        start[task] = arrivals[task, best]
        if seconds[task, best] > 0:
            start[task] = max(start[task], free[best])
            free[best] = start[task] + seconds[task, best]
        end[task] = start[task] + seconds[task, best]
        data = find_homeless(task, in_start, in_of, leaders, placement)
        settle(task, best, in_start, in_of, leaders, placement)
        for read in data:  # other devices must receive it from here
            for other in out_of[out_start[read] : out_start[read + 1]]:
                if waiting[other] == 0:
                    survey(other, in_start, in_of, placement, end, transfer, held, arrivals, needs)
        fresh = hand_on(waiting, out_of[out_start[task] : out_start[task + 1]])


@njit(cache=True, nogil=True)
def may_hurry(seconds, favourite, task):
    """Return whether a task may start, or count as starting, before a device is free."""
    return favourite[task] >= 0 or seconds[task].min() == 0


@njit(cache=True, nogil=True)
def hand_on(waiting, readers):
    """Return the readers that have become ready."""
    for reader in readers:
        waiting[reader] -= 1
    return readers[waiting[readers] == 0]


@njit(cache=True, nogil=True)
def find_homeless(task, in_start, in_of, leaders, placement):
    """Return the nodes without a device that are placed with the task.

    These are data that the task reads, and the leaders of the task and of that data.
    """
    reads = in_of[in_start[task] : in_start[task + 1]]
    data = reads[placement[reads] < 0]
    own = np.concatenate((data, leaders[data], leaders[task : task + 1]))
    return own[placement[own] < 0]


class Tasks(NamedTuple):
    """The tasks of a list scheduler, their costs and their edges."""

    seconds: np.ndarray  # (tasks, devices) time of each task on each device
    transfer: np.ndarray  # (tasks,) time to send its output to another device
    producers: Neighbours
    consumers: Neighbours


class Plan(NamedTuple):
    """A device, a start and an end for every task."""

    placement: np.ndarray  # (tasks,) int64
    start: np.ndarray  # (tasks,) planned seconds
    end: np.ndarray  # (tasks,)


@njit(cache=True, nogil=True)
def rank_upward(mean, transfer, out_start, out_of):
    """Return the longest path (tasks,), in mean seconds, from each task's start to the end of
    all."""
    ranks = np.zeros(mean.size)
    for task in range(mean.size - 1, -1, -1):
        longest = 0.0
        for place in range(out_start[task], out_start[task + 1]):
            longest = max(longest, transfer[task] + ranks[out_of[place]])
        ranks[task] = mean[task] + longest
    return ranks


@njit(cache=True, nogil=True)
def rank_downward(mean, transfer, in_start, in_of):
    """Return the longest path (tasks,), in mean seconds, from the beginning to each task's
    start."""
    ranks = np.zeros(mean.size)
    for task in range(mean.size):
        for place in range(in_start[task], in_start[task + 1]):
            read = in_of[place]
            ranks[task] = max(ranks[task], ranks[read] + mean[read] + transfer[read])
    return ranks


@njit(cache=True, nogil=True)
def find_arrival(task, device, in_start, in_of, placement, end, transfer):
    """Return the seconds at which all inputs of the task have arrived on the device."""
    arrival = 0.0
    for place in range(in_start[task], in_start[task + 1]):
        read = in_of[place]
        there = end[read]
        if placement[read] >= 0 and placement[read] != device:
            there += transfer[read]
        arrival = max(arrival, there)
    return arrival


@njit(cache=True, nogil=True)
def find_gap(starts, ends, count, arrival, length):
    """Find the first gap for the task among the `count` sorted busy intervals of a device.

    Returns:
        the index of the gap, and the start of the task in seconds.
    """
    low, high = 0, count
    while low < high:  # binary search: intervals that end before the arrival leave no usable gap
        middle = (low + high) // 2
        if ends[middle] <= arrival:
            low = middle + 1
        else:
            high = middle
    begin = arrival if low == 0 else max(arrival, ends[low - 1])
    for place in range(low, count):
        if begin + length <= starts[place]:
            return place, begin
        begin = max(begin, ends[place])
    return count, begin


@njit(cache=True, nogil=True)
def settle(task, device, in_start, in_of, leaders, placement):
    """Assign the task, its leader, and the data that it reads first, to the device."""
    placement[task] = placement[leaders[task]] = device
    for place in range(in_start[task], in_start[task + 1]):
        read = in_of[place]
        if placement[read] < 0:
            if placement[leaders[read]] < 0:
                placement[leaders[read]] = device
            placement[read] = placement[leaders[read]]


@njit(cache=True, nogil=True)
def schedule_by_insertion(order, seconds, transfer, in_start, in_of, leaders, fixed):
    """Schedule the tasks in `order`, each on the device on which it ends first.

    Data without inputs waits for its first reader and goes to the reader's device.

    Args:
        leaders: (tasks,) the task whose device each task shares.
        fixed: (tasks,) the device of a task that is already placed, else -1; its leader's device
            takes precedence.
    """
    tasks, devices = seconds.shape
    placement, start, end = np.full(tasks, -1), np.zeros(tasks), np.zeros(tasks)
    starts, ends = np.zeros((devices, tasks)), np.zeros((devices, tasks))
    counts = np.zeros(devices, np.int64)
    for task in order:
        if in_start[task] == in_start[task + 1] and seconds[task].max() == 0:
            continue
        best, best_place, best_start, best_end = -1, 0, 0.0, np.inf
        known = placement[leaders[task]]
        if known < 0:
            known = fixed[task]
        for device in range(devices):
            if known >= 0 and known != device:
                continue
            length = seconds[task, device]
            arrival = find_arrival(task, device, in_start, in_of, placement, end, transfer)
            place, begin = 0, arrival
            if length > 0:
                place, begin = find_gap(
                    starts[device], ends[device], counts[device], arrival, length
                )
            if begin + length < best_end:
                best, best_place, best_start, best_end = device, place, begin, begin + length
        settle(task, best, in_start, in_of, leaders, placement)
        start[task], end[task] = best_start, best_end
        if seconds[task, best] > 0:
            count = counts[best]
            starts[best, best_place + 1 : count + 1] = starts[best, best_place:count].copy()
            ends[best, best_place + 1 : count + 1] = ends[best, best_place:count].copy()
            starts[best, best_place], ends[best, best_place] = best_start, best_end
            counts[best] += 1
    return np.maximum(placement, 0), start, end
