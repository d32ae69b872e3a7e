"""Earliest task first, compiled: of all that could start, on any device, what starts first.

Sources: Hwang et al., "Scheduling precedence graphs in systems with interprocessor communication
times" (1989); Jeon et al., "Baechi: fast device placement of machine learning graphs" (2020), for
its m-ETF, which looks at memory, and m-SCT. Links are never busy, as in the papers.
"""

import numpy as np
from numba import njit

from solution.placement.baselines.insertion import find_arrival, settle


@njit(cache=True, nogil=True)
def survey(task, in_start, in_of, placement, end, transfer, held, arrivals, needs):
    """Note when all that the task reads is on each device, and the bytes that it would take there.

    Data that is on no device yet comes with the task.
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
    """The place in `ready` and the device of the pair that starts first; device -1: none fits.

    Ties: the first of `ready`, the first device.

    Args:
        hurried: how many of `ready` may start before any device is free.
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
            break  # nothing can start before that
    return best_place, best_device


@njit(cache=True, nogil=True)
def choose_anyhow(task, leaders, placement, room):
    """Where nothing fits: its leader's device, or that with most room."""
    known = placement[leaders[task]]
    return known if known >= 0 else int(np.argmax(room))


@njit(cache=True, nogil=True)
def put_in(ready, count, places, task):
    """Put the task into `ready`, of which `count` are in order of their places."""
    at = count
    while at > 0 and places[ready[at - 1]] > places[task]:
        ready[at] = ready[at - 1]
        at -= 1
    ready[at] = task


@njit(cache=True, nogil=True)
def find_waiting(seconds, in_start, in_of):
    """Producers (tasks,) that each task waits for; -1 for data, which goes to its first reader."""
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
    """Take whatever can start first, again and again, on devices that have room for it.

    Args:
        order: (tasks,) in which those are taken that could start at one time.
        leaders: (tasks,) the task whose device each has.
        held: (tasks,) bytes that a task holds; memory: (devices,) bytes.
        favourite: (tasks,) the producer on whose device a task counts as starting earlier, by its
            transfer (m-SCT); -1 for none (m-ETF).
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
        for read in data:  # now it has to be sent to others
            for other in out_of[out_start[read] : out_start[read + 1]]:
                if waiting[other] == 0:
                    survey(other, in_start, in_of, placement, end, transfer, held, arrivals, needs)
        fresh = hand_on(waiting, out_of[out_start[task] : out_start[task + 1]])


@njit(cache=True, nogil=True)
def may_hurry(seconds, favourite, task):
    """Whether a task may start, or count as starting, before a device is free."""
    return favourite[task] >= 0 or seconds[task].min() == 0


@njit(cache=True, nogil=True)
def hand_on(waiting, readers):
    """Those of the readers that wait for nothing more."""
    for reader in readers:
        waiting[reader] -= 1
    return readers[waiting[readers] == 0]


@njit(cache=True, nogil=True)
def find_homeless(task, in_start, in_of, leaders, placement):
    """What is on no device yet and will be when the task is: what it reads, and leaders of both."""
    reads = in_of[in_start[task] : in_start[task + 1]]
    data = reads[placement[reads] < 0]
    own = np.concatenate((data, leaders[data], leaders[task : task + 1]))
    return own[placement[own] < 0]
