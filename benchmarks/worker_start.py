"""Measure the cost of starting a training worker: CPU seconds of the server, and of each worker.

    python -m benchmarks.worker_start

A worker is measured until everything that the default experiments need is imported. For
comparison, spawned processes, each of which imports everything itself.
"""

import multiprocessing
import subprocess
import sys
import time
from multiprocessing.context import BaseContext

from solution.experiments import DEFAULTS
from solution.system.processes import STACK, UNCOLLECTED, fork_server

WORKERS = 5


def start(seconds: "multiprocessing.Queue[float]") -> None:
    """Import what training needs; report this process's CPU seconds until then."""
    from solution.experiments.base import find_experiment
    from solution.training import out_of_fold

    assert out_of_fold
    for name in DEFAULTS:
        find_experiment(name)
    seconds.put(time.process_time())


def measure(context: BaseContext) -> list[float]:
    """Return CPU seconds of workers that are started one after the other."""
    found = []
    for _ in range(WORKERS):
        seconds = context.Queue()
        worker = context.Process(target=start, args=(seconds,))  # type: ignore[attr-defined]
        worker.start()
        found.append(seconds.get())
        worker.join()
    return found


def main() -> None:
    """Print both variants."""
    forked = measure(fork_server(STACK))
    spawned = measure(multiprocessing.get_context("spawn"))
    stack = "import time\n" + "".join(f"import {name}\n" for name in (UNCOLLECTED, *STACK))
    command = [sys.executable, "-c", stack + "print(time.process_time())"]
    server = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"the server, once: {server:.2f} CPU seconds")
    for name, found in (("forked", forked), ("spawned", spawned)):
        print(f"{name}: {min(found):.2f} to {max(found):.2f} CPU seconds a worker")


if __name__ == "__main__":
    main()
