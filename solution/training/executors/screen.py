"""Forward the progress reports of tasks in other processes to the progress display."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from solution.system.report import Report
from solution.training.watch import Watch

# at least this long between two reports of a task: people read no faster, and a queue is finite
REPORT_SECONDS = 0.1


class Screen(ExitStack):
    """The progress displays of all running tasks."""

    def __init__(self, watch: Watch, names: Sequence[str]) -> None:
        super().__init__()
        self._watch, self._names = watch, names
        self._open: dict[int, tuple[ExitStack, Report]] = {}
        self._finished: set[int] = set()

    def show(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Show a task's report; a report without facts means that the task has begun."""
        if number in self._finished:  # a report may arrive after the result
            return
        if number not in self._open:
            stack = self.enter_context(ExitStack())
            self._open[number] = stack, stack.enter_context(self._watch.job(self._names[number]))
        if facts:
            self._open[number][1](*facts, **more)

    def finish(self, number: int) -> None:
        """Remove a finished task from the display."""
        self.show(number, (), {})
        self._open.pop(number)[0].close()
        self._finished.add(number)
        self._watch.advance()


class Throttled:
    """A Report that forwards at most ten reports per second, but every new best score."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._next = 0.0
        self._best: float | None = None

    def begin(self) -> None:
        """Report that the task has begun."""
        self._send()

    def __call__(
        self,
        done: float,
        total: int,
        note: str = "",
        score: float | None = None,
        **facts: Any,
    ) -> None:
        """Forward the report, unless the last one was too recent."""
        is_best = score is not None and (self._best is None or score > self._best)
        now = time.monotonic()
        if is_best or now >= self._next:
            self._best = score if is_best else self._best
            self._next = now + REPORT_SECONDS
            self._send(done, total, note, score, **facts)
