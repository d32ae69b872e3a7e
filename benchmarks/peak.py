"""Measure the peak memory of several processes together, and their processor time."""

import threading
from collections.abc import Callable
from typing import Self

import psutil


class Peak:
    """Sample the memory of processes while the block runs.

    Args:
        find: returns the processes at each sample.
        memory_of: returns the bytes of one process.
        each: seconds between two samples.
    """

    def __init__(
        self,
        find: Callable[[], list[psutil.Process]],
        memory_of: Callable[[psutil.Process], int] = lambda process: process.memory_info().rss,
        each: float = 0.2,
    ) -> None:
        self._find, self._memory_of, self._each = find, memory_of, each
        self._over = threading.Event()
        self._seconds: dict[int, float] = {}  # of each process, at its last sample
        self.megabytes = 0.0  # peak

    @property
    def core_seconds(self) -> float:
        """Return the processor seconds of all processes, up to their last samples."""
        return sum(self._seconds.values())

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._each):
            total = 0
            for process in self._find():
                try:
                    total += self._memory_of(process)
                    self._seconds[process.pid] = sum(process.cpu_times()[:2])
                except psutil.Error:
                    continue
            self.megabytes = max(self.megabytes, total / 2**20)
