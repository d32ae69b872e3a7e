"""Worker processes: how many there may be, and how they end.

They are spawned: a forked process inherits the locks of threads that it does not have.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import psutil
from threadpoolctl import threadpool_limits

from solution.system.errors import InputError

MEMORY_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")
CONTEXT = multiprocessing.get_context("spawn")


def count_cores() -> int:
    """The cores that this process may use, in a container too."""
    return int(joblib.cpu_count())


def available_memory() -> int:
    """The bytes that are free, or that the container may have at most."""
    free = int(psutil.virtual_memory().available)
    try:
        return min(free, int(MEMORY_OF_CONTAINER.read_text()))
    except (OSError, ValueError):  # there is none, or it has no limit
        return free


def one_thread() -> threadpool_limits:
    """Matrix products with one thread: they are thin, and threads would wait for each other."""
    return threadpool_limits(limits=1, user_api="blas")


@contextmanager
def open_pool(
    count: int, initializer: Callable[..., None], *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Workers that end at once where anything goes wrong, and with the process that began them.

    Args:
        initializer: called once in every worker with `arguments`.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    pool = ProcessPoolExecutor(
        count, CONTEXT, initializer=_begin, initargs=(initializer, *arguments)
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise InputError(
            "A worker process was killed, as the system does when memory runs out. What is "
            "finished is kept: start again with fewer --workers."
        ) from error
    except BaseException:  # what they are at may take hours
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(initializer: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that began them
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
