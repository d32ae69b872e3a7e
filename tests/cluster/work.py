"""What the nodes of a test's cluster are given to do."""

import os
import signal
import time
from pathlib import Path

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


def fill(megabytes: int, report: Report) -> bytes:
    """A large answer."""
    return os.urandom(1 << 20) * megabytes


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
