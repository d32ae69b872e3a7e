"""The two heaps of the event loop, compiled: what happens next, and what a device runs next."""

from numba import njit

from solution.placement.simulation.rows import LEVEL, READY


@njit(cache=True, nogil=True, forceinline=True)
def push_event(times, codes, size, time, code):
    """Put an event into the heap of `size`; the smallest time, then code, stands first."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if times[above] < time or times[above] == time and codes[above] < code:
            break
        times[place], codes[place] = times[above], codes[above]
        place = above
    times[place], codes[place] = time, code


@njit(cache=True, nogil=True, forceinline=True)
def pop_event(times, codes, size):
    """Take the first event out of a heap of `size`; its code."""
    code = codes[0]
    last_time, last_code = times[size - 1], codes[size - 1]
    place, end = 0, size - 1
    while True:
        below = 2 * place + 1
        if below >= end:
            break
        right = below + 1
        if right < end and (
            times[right] < times[below]
            or times[right] == times[below]
            and codes[right] < codes[below]
        ):
            below = right
        if last_time < times[below] or last_time == times[below] and last_code < codes[below]:
            break
        times[place], codes[place] = times[below], codes[below]
        place = below
    times[place], codes[place] = last_time, last_code
    return code


@njit(cache=True, nogil=True, forceinline=True)
def is_before(costs, one, other):
    """Whether kernel `one` starts before the `other` where both are ready."""
    if costs[LEVEL, one] != costs[LEVEL, other]:
        return costs[LEVEL, one] > costs[LEVEL, other]
    if costs[READY, one] != costs[READY, other]:
        return costs[READY, one] < costs[READY, other]
    return one < other


@njit(cache=True, nogil=True, forceinline=True)
def push_kernel(heap, base, size, kernel, costs):
    """Put a ready kernel into the heap of `size` that begins at `base`."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if is_before(costs, heap[base + above], kernel):
            break
        heap[base + place] = heap[base + above]
        place = above
    heap[base + place] = kernel


@njit(cache=True, nogil=True, forceinline=True)
def pop_kernel(heap, base, size, costs):
    """Take the first kernel out of the heap of `size` that begins at `base`."""
    found, last = heap[base], heap[base + size - 1]
    place, end = 0, size - 1
    while True:
        below = 2 * place + 1
        if below >= end:
            break
        if below + 1 < end and is_before(costs, heap[base + below + 1], heap[base + below]):
            below += 1
        if is_before(costs, last, heap[base + below]):
            break
        heap[base + place] = heap[base + below]
        place = below
    heap[base + place] = last
    return found
