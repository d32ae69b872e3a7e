"""Do the same to every file, one worker process per core, under a progress bar that counts bytes.

Processes rather than threads: half of the work, encoding layouts and hashing rows, holds the
interpreter's lock.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.errors import InputError
from solution.progress import byte_bars

BYTES_WORTH_A_WORKER = 4 << 20  # compressed; starting a process takes half a second
POLL_SECONDS = 0.1
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class FileFunction(Protocol[R_co]):
    """What is done to a file; it reports the compressed bytes that it has read."""

    def __call__(self, file: GraphFile, advance: Advance) -> R_co: ...


def map_files(
    function: FileFunction[R],
    files: Sequence[GraphFile],
    description: str,
    workers: int | None = None,
) -> list[R]:
    """The results in the order of `files`. The largest files are begun first.

    Args:
        function: at the top level of a module, so that other processes find it.
        workers: processes; by default one per core, and none where the files are small.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    sizes = [file.size for file in files]
    useful = -(-sum(sizes) // BYTES_WORTH_A_WORKER)
    count = workers or min(count_cores(), len(files), useful)
    with byte_bars() as progress:
        task = progress.add_task(description, total=sum(sizes), note="")
        if count <= 1:
            with one_thread():
                return [
                    _track(function, file, size, lambda number: progress.advance(task, number))
                    for file, size in zip(files, sizes, strict=True)
                ]
        order = sorted(range(len(files)), key=lambda position: -sizes[position])
        counter = multiprocessing.get_context("spawn").Value("q", 0)
        with _pool(count, counter) as pool:
            futures = {at: pool.submit(_work, function, files[at], sizes[at]) for at in order}
            for _ in _until_done(list(futures.values())):
                progress.update(task, completed=counter.value)
            return [futures[position].result() for position in range(len(files))]


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_thread() -> threadpool_limits:
    """Matrix products with one thread: they are thin, and threads would wait for each other."""
    return threadpool_limits(limits=1, user_api="blas")


def _track(function: FileFunction[R], file: GraphFile, size: int, advance: Advance) -> R:
    """Call the function, and make what it reports add up to the size of the file."""
    left = size

    def count_down(count: int) -> None:
        nonlocal left
        count = min(count, left)
        left -= count
        advance(count)

    result = function(file, count_down)
    count_down(left)
    return result


@contextmanager
def _pool(count: int, counter: "Synchronized[int]") -> Iterator[ProcessPoolExecutor]:
    """Workers that end at once where anything goes wrong."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(counter,))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise InputError(
            "A worker process was killed, as the system does when memory runs out. What is "
            "finished is kept: start again with fewer --workers."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _until_done(futures: list[Future[R]]) -> Iterator[None]:
    """Yield now and then until all are done; raise as soon as one has failed."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        yield


_counter: "Synchronized[int]"  # of a worker process


def _begin(counter: "Synchronized[int]") -> None:
    global _counter
    _counter = counter
    one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: FileFunction[R], file: GraphFile, size: int) -> R:
    return _track(function, file, size, _advance)


def _advance(count: int) -> None:
    with _counter.get_lock():
        _counter.value += count
