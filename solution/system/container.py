"""Read how much memory Linux control groups (cgroups), such as a container's, leave a process.

A process is in one group, which lies inside others. Each group may have a limit, which counts the
memory of all its processes. Cached files count too, but the kernel drops them when memory is
needed. So they are treated as free memory here.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the Linux kernel.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

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
    except OSError:  # not Linux
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
