"""A Watch that takes note of all it is shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from solution.system.report import Report


class Watched:
    """What was reported, and how many tasks are done."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []
        self.done = 0

    @contextmanager
    def job(self, name: str) -> Iterator[Report]:
        self.begun.append(name)

        def report(done: int, total: int, note: str = "", *_: Any, **__: Any) -> None:
            self.notes.append(note)

        yield report

    def advance(self) -> None:
        self.done += 1
