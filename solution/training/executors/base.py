"""The common interface of executors, which run independent tasks locally or on a cluster.

A caller describes its tasks, and an executor runs them: in other processes of this machine
(`local`), or on the nodes of a cluster (`cluster`). Results are passed to the calling process one
at a time, so that a single process writes files.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from solution.training.watch import Watch

# A function that is called as work(*task.arguments, report), one call at a time in each process. It
# is pickled once for each process and lives as long, so it may cache the data that it reads.
Work = Callable[..., Any]
Keep = Callable[[int, Any], None]  # called with the task's number and its result


@dataclass(frozen=True)
class Needs:
    """The resources that a task needs on the machine that runs it."""

    cores: int = 1
    gpus: float = 0.0  # below 1: several tasks share a GPU
    bytes: int = 0  # of memory


@dataclass(frozen=True)
class Task:
    """A task for an executor."""

    name: str  # shown by the progress display
    arguments: tuple[Any, ...]  # must be picklable
    needs: Needs = Needs()


class Executor(Protocol):
    """Runs tasks, in any order."""

    @property
    def is_away(self) -> bool:
        """Whether tasks may run on machines that do not see the folders of this machine."""
        ...

    @property
    def gpu_share(self) -> float:
        """The share of a GPU requested for each net; 0: none is requested, and visible GPUs are
        used."""
        ...

    @property
    def slots(self) -> int:
        """The number of one-core tasks that run at once; known while the executor is open."""
        ...

    def open(self) -> AbstractContextManager[object]:
        """Keep what several calls of `run` need, such as a cluster, started during the block."""
        ...

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = ...) -> None:
        """Run all tasks.

        Args:
            work: the function that runs a task.
            watch: the progress display.
            keep: called in this process with each result.

        Raises:
            InputError: a process was killed. A task's error is raised when the others are stopped.
        """
        ...


def forget(number: int, result: Any) -> None:
    """Ignore a result; for tasks that write files themselves."""
