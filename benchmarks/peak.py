"""How much memory several processes have together, at most, and what time they took."""

import threading
from collections.abc import Callable
from typing import Self

import psutil


class Peak:
    """What processes have together inside the block, looked at often.

    Args:
        find: which processes, at each look.
        memory_of: bytes of one.
        each: seconds between two looks.
    """

    def __init__(
        self,
        find: Callable[[], list[psutil.Process]],
        memory_of: Callable[[psutil.Process], int] = lambda process: process.memory_info().rss,
        each: float = 0.2,
    ) -> None:
        self._find, self._memory_of, self._each = find, memory_of, each
        self._over = threading.Event()
        self._seconds: dict[int, float] = {}  # of each process, when it was last seen
        self.megabytes = 0.0  # at most

    @property
    def core_seconds(self) -> float:
        """Of all of them, until each was last seen."""
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
