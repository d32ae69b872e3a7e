"""How much memory the control groups of Linux leave a process: what a container is bounded by.

A process is in one group, which is inside others; each may have a limit, and counts what all that
are in it take. Files that were read stay in memory and are counted too, but are given up as soon as
somebody needs the room, so they count as free, as they do outside of a container.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the Linux kernel.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


class _Version(NamedTuple):
    """What the files of a group are called."""

    limit: str
    taken: str
    files: tuple[str, ...]  # lines of memory.stat: bytes of files that may be given up


_SECOND = _Version("memory.max", "memory.current", ("active_file", "inactive_file"))
_FIRST = _Version(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def memory_left(groups: Path = GROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """The bytes that the tightest group around this process leaves; None where none has a limit.

    Args:
        groups: where the groups are mounted.
        membership: lines number:controllers:group, of which groups the process is in.
    """
    return min(_list_left(groups, membership), default=None)


def _list_left(groups: Path, membership: Path) -> Iterator[int]:
    for version, mounted, group in _list_hierarchies(groups, membership):
        # Inside a container its group may be mounted as the root, whatever it is called outside.
        for inside in (group, *group.parents):
            left = _left_in(mounted / inside.relative_to("/"), version)
            if left is not None:
                yield left


def _list_hierarchies(
    groups: Path, membership: Path
) -> Iterator[tuple[_Version, Path, PurePosixPath]]:
    """Where groups that count memory are mounted, and the path below it of the process's own."""
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
    if limit is None:  # there is no such group here, or it has no limit: "max"
        return None
    taken = _read_number(group / version.taken) or 0
    return max(0, limit - max(0, taken - _count_files(group, version)))


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _count_files(group: Path, version: _Version) -> int:
    """The bytes of files that were read and may be given up."""
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    counted = dict(line.split(maxsplit=1) for line in lines)
    return sum(int(counted.get(name, 0)) for name in version.files)
