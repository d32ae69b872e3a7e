"""HEFT and CPoP as in their paper, where links have no queue.

Source: Topcuoglu et al., "Performance-effective and low-complexity task scheduling for
heterogeneous computing" (2002), with insertion: a task goes into the first gap that is long enough.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from solution.domain.neighbours import Neighbours


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
