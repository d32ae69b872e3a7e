"""The common interface of executors, which run independent tasks locally or on a cluster.

A caller describes its tasks, and an executor runs them: in other processes of this machine
(`local`), or on the nodes of a cluster (`cluster`). Results are passed to the calling process one
at a time, so that a single process writes files. Reports of tasks in other processes are forwarded
to the progress display.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from solution.runs.folder import Run
from solution.system.report import FitProgress, Report
from solution.training.jobs import Job
from solution.training.plan import Plan
from solution.training.watch import Watch

# bytes of memory of a worker process, mostly for the tables of the whole tile collection
BYTES_OF_A_WORKER = 5 << 30
REPORT_SECONDS = 0.1  # shortest time between two reports of a task

# A function called as work(*task.arguments, report). Each worker process receives it once, so it
# may cache what it reads.
Work = Callable[..., Any]
Keep = Callable[[int, Any], None]  # called with the number of a task and the task's result


@dataclass(frozen=True)
class Needs:
    """The resources that a task needs on the machine that runs it."""

    cores: int = 1
    gpus: float = 0.0  # number of GPUs; below 1: several tasks share a GPU
    bytes: int = 0  # bytes of memory


@dataclass(frozen=True)
class Task:
    """A task for an executor."""

    name: str  # shown by the progress display
    arguments: tuple[Any, ...]  # arguments of the work, which must be picklable
    needs: Needs = Needs()


class Executor(Protocol):
    """A way to run tasks in any order: in processes of this machine, or on a cluster."""

    @property
    def is_away(self) -> bool:
        """Whether tasks may run on machines that do not see the folders of this machine."""
        ...

    @property
    def gpu_share(self) -> float:
        """The fraction of a GPU to request for each net; 0: request none, use any visible GPU."""
        ...

    @property
    def slots(self) -> int:
        """The number of one-core tasks that run at once; known while the executor is open."""
        ...

    def open(self) -> AbstractContextManager[object]:
        """Return a context in which all calls of `run` share resources, such as one cluster."""
        ...

    def train(self, jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch) -> None:
        """Train jobs, write their folders into the run, and show their progress."""
        ...

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = ...) -> None:
        """Run `work` on all tasks; call `keep` in this process with each task's number and result.
        If a task fails, stop the others and raise its error; InputError if a process was killed."""
        ...


def forget(number: int, result: Any) -> None:
    """Ignore a result; used for tasks that write files themselves."""


class Screen(ExitStack):
    """The progress displays of all running tasks."""

    def __init__(self, watch: Watch, names: Sequence[str]) -> None:
        super().__init__()
        self._watch, self._names = watch, names
        self._open: dict[int, tuple[ExitStack, Report]] = {}
        self._finished: set[int] = set()

    def show(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Show a report of task `number`. `facts`, `more`: the arguments of a Report; without
        `facts` the report says only that the task has begun."""
        if number in self._finished:  # drop a report that arrives after the result
            return
        if number not in self._open:
            stack = self.enter_context(ExitStack())
            self._open[number] = stack, stack.enter_context(self._watch.job(self._names[number]))
        if facts:
            self._open[number][1](*facts, **more)

    def finish(self, number: int) -> None:
        """Remove a finished task from the display, and count it."""
        self.show(number, (), {})
        self._open.pop(number)[0].close()
        self._finished.add(number)
        self._watch.advance()


class Throttled:
    """A Report that forwards at most ten reports per second, and also every new best score."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._next = 0.0
        self._best: float | None = None

    def begin(self) -> None:
        """Report that the task has begun."""
        self._send()

    def __call__(self, *given: Any, **named: Any) -> None:
        """Forward the report if it has a new best score or REPORT_SECONDS have passed."""
        score, now = FitProgress(*given, **named).score, time.monotonic()
        is_best = score is not None and (self._best is None or score > self._best)
        if is_best or now >= self._next:
            self._best = score if is_best else self._best
            self._next = now + REPORT_SECONDS
            self._send(*given, **named)
