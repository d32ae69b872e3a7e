"""Give memory that the C library keeps after it was freed back to the system."""

import ctypes
import sys

import psutil

SPARE = 1 << 30  # bytes by which the process may grow before free memory is returned


class SpareMemory:
    """Give freed memory back to the system whenever the process has grown by SPARE.

    Arrays of many sizes fragment glibc's heap: in training on graphs with thousands of nodes, the
    heap grew to three times the memory that a step needs. Giving memory back takes as long as
    several small steps, so it is done rarely. Other C libraries give it back by themselves.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._least = self._resident()

    def give_back(self) -> None:
        """Give freed memory back if the process has grown by SPARE since this was last done."""
        if self._resident() >= self._least + SPARE:
            trim()
            self._least = self._resident()

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)


def trim() -> None:
    """Give all freed memory back to the system, if the C library is glibc."""
    if sys.platform == "linux":
        return_free = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if return_free is not None:  # musl, another C library, does not have malloc_trim
            return_free(0)
