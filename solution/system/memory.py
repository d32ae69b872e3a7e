"""Measure the memory and the time of a block; find free memory, and give it back to the system.

Linux control groups (cgroups), such as a container's, may limit memory. A process is in one group,
which lies inside others. Each group may have a limit, which counts the memory of all its processes.
Cached files count too, but the kernel drops them when memory is needed. So they are treated as free
memory here.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the Linux kernel.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil

SPARE = 1 << 30  # bytes by which the process may grow before free memory is returned


class SpareMemory:
    """A monitor that gives freed memory back to the system when the process has grown by SPARE.

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


GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


class _Version(NamedTuple):
    """The names of the files that describe a group in one version of cgroups."""

    limit: str
    taken: str
    files: tuple[str, ...]  # names of the lines in memory.stat with bytes of cached files


_SECOND = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))
_FIRST = _Version(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def memory_left(groups: Path = GROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """Return the bytes that this process may still use, by the tightest limit of its groups.

    Return None if no group has a limit.

    Args:
        groups: the folder in which the groups are mounted.
        membership: a file of lines number:controllers:group, with the groups of the process.
    """
    return min(_list_left(groups, membership), default=None)


def _list_left(groups: Path, membership: Path) -> Iterator[int]:
    for version, mounted, group in _list_hierarchies(groups, membership):
        # Inside a container the mount may begin at any of the group's parents, so try them all.
        for inside in (group, *group.parents):
            left = _left_in(mounted / inside.relative_to("/"), version)
            if left is not None:
                yield left


def _list_hierarchies(
    groups: Path, membership: Path
) -> Iterator[tuple[_Version, Path, PurePosixPath]]:
    """Yield version, mount point and the process's group for each hierarchy that limits memory."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:  # this system is not Linux
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield _SECOND, groups, PurePosixPath(group)
        elif "memory" in controllers.split(","):
            yield _FIRST, groups / "memory", PurePosixPath(group)


def _left_in(group: Path, version: _Version) -> int | None:
    limit = _read_number(group / version.limit)
    if limit is None:  # the group does not exist here, or its limit is "max"
        return None
    taken = _read_number(group / version.taken) or 0
    return max(0, limit - max(0, taken - _count_files(group, version)))


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _count_files(group: Path, version: _Version) -> int:
    """Return the bytes of the group's cached files, which the kernel can drop."""
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    counted = dict(line.split(maxsplit=1) for line in lines)
    return sum(int(counted.get(name, 0)) for name in version.files)


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
