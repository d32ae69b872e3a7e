"""Measure the wall time and the process's peak memory of a block."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

INTERVAL_SECONDS = 0.02


@dataclass
class Cost:
    """Wall time and peak memory of a block; both are complete when the block ends."""

    seconds: float = 0.0
    peak_megabytes: float = 0.0


@contextmanager
def measure() -> Iterator[Cost]:
    """Measure the block; memory is the resident set of the whole process, sampled every 20 ms."""
    cost, process, done = Cost(), psutil.Process(), threading.Event()

    def sample() -> None:
        while True:
            cost.peak_megabytes = max(cost.peak_megabytes, process.memory_info().rss / 2**20)
            if done.wait(INTERVAL_SECONDS):
                return

    sampler = threading.Thread(target=sample, daemon=True)
    start = time.perf_counter()
    sampler.start()
    try:
        yield cost
    finally:
        cost.seconds = time.perf_counter() - start
        done.set()
        sampler.join()
