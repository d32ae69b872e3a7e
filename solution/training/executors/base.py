"""The one interface for doing independent pieces of work, wherever they are done.

Whoever has work to do says what it is; an executor says where: in other processes of this machine
(`local`), or on the nodes of a cluster (`cluster`). What comes back of a piece of work is handed to
the process that asked, one piece at a time, so that one process writes.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from solution.training.watch import Watch

# Called as work(*task.arguments, report), at most once at a time in a process. It is pickled once
# for each process and lives as long, so what it reads may be kept in it.
Work = Callable[..., Any]
Keep = Callable[[int, Any], None]  # the task's number, and what the work returned


@dataclass(frozen=True)
class Needs:
    """What a piece of work takes of the machine that does it."""

    cores: int = 1
    gpus: float = 0.0  # a share of one, where several fit beside each other
    bytes: int = 0  # of memory


@dataclass(frozen=True)
class Task:
    """A piece of work."""

    name: str  # to watch it by
    arguments: tuple[Any, ...]  # that can be pickled
    needs: Needs = Needs()


class Executor(Protocol):
    """Does tasks, in any order."""

    @property
    def is_away(self) -> bool:
        """Whether the work may be done where this machine's folders are not."""
        ...

    @property
    def gpu_share(self) -> float:
        """How much of a GPU is asked for each net; 0: it takes what is there."""
        ...

    @property
    def slots(self) -> int:
        """How many tasks of one core are done at once; known while it is open."""
        ...

    def open(self) -> AbstractContextManager[object]:
        """Around several calls of `run`, so that what they need is started once."""
        ...

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = ...) -> None:
        """Do all tasks.

        Args:
            keep: called here with what each piece of work returned.

        Raises:
            InputError: a process was killed; or whatever the work raises, the others ended.
        """
        ...


def forget(number: int, result: Any) -> None:
    """A Keep for work whose results are files already."""
