"""What the nodes of a test's cluster are given to do, and a Watch that notes what it is shown."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solution.system.report import Report


def square(number: int, report: Report) -> int:
    """Report, and answer."""
    report(1, 2, f"squaring {number}", 0.5)
    return number * number


def say_where(number: int, seconds: float, report: Report) -> str:
    """The node that does it, after a while."""
    import ray

    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


def fail(folder: Path, report: Report) -> None:
    """Raise, and leave a trace of each attempt."""
    (folder / f"{os.getpid()}-{time.time_ns()}").touch()
    raise ValueError("a defect of the work")


def die(folder: Path, times: int, report: Report) -> str:
    """Die by a kill, so many times; then answer."""
    (folder / f"{os.getpid()}-{time.time_ns()}").touch()
    if len(list(folder.iterdir())) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def sleep(folder: Path, report: Report) -> None:
    """Say that it was begun, and take long."""
    (folder / str(os.getpid())).touch()
    time.sleep(600)


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
