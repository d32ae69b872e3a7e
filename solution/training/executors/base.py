"""The one interface for doing independent pieces of work, wherever they are done.

Whoever has work to do says what it is; an executor says where: in other processes of this machine
(`local`), or elsewhere. Results are files, so nothing but reports comes back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from solution.training.watch import Watch

# Called as work(*task.arguments, report), at most once at a time in a process. It is pickled once
# for each process and lives as long, so what it reads may be kept in it.
Work = Callable[..., None]


@dataclass(frozen=True)
class Task:
    """A piece of work."""

    name: str  # to watch it by
    arguments: tuple[Any, ...]  # that can be pickled


class Executor(Protocol):
    """Does tasks, in any order."""

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch) -> None:
        """Do all tasks.

        Raises:
            InputError: a process was killed; or whatever the work raises, the others ended.
        """
        ...
