"""Earliest-task-first scheduling, compiled: of ready tasks and devices, the earliest start.

Sources: Hwang et al., "Scheduling precedence graphs in systems with interprocessor communication
times" (1989); Jeon et al., "Baechi: fast device placement of machine learning graphs" (2020), for
its m-ETF, which respects memory, and m-SCT. As in the papers, links have no queue.
"""

import numpy as np
from numba import njit

from solution.placement.baselines.insertion import find_arrival, settle


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
