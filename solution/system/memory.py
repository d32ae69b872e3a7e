"""Give memory that the C library keeps for later back to the system."""

import ctypes
import sys

import psutil

SPARE = 1 << 30  # bytes that may lie idle


class SpareMemory:
    """Looks now and then whether the process has grown, and gives back what is free.

    Arrays of many sizes leave glibc's heap full of holes: training on graphs with thousands of
    nodes it grew to three times what a step needs. To give them back takes as long as some small
    steps, so it waits until much has gathered. Other C libraries do that by themselves.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._least = self._resident()

    def give_back(self) -> None:
        """Return free memory if the process has grown by SPARE since it last did."""
        if self._resident() >= self._least + SPARE:
            trim()
            self._least = self._resident()

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)


def trim() -> None:
    """Return all free memory, where glibc is the C library."""
    if sys.platform == "linux":
        return_free = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if return_free is not None:  # musl has none
            return_free(0)
