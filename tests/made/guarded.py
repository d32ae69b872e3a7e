"""Read hostile input in a separate process with limited memory and time.

So a regression fails a test, and does not fill the machine's memory or hang.
"""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MEMORY = 1 << 30  # bytes, in addition to those at the start
SECONDS = 120  # processor time is shared, so this is much


class Guard:
    """A process that calls picklable functions; after a failure it is started again."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def call(
        self,
        function: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return the function's result, or raise its exception.

        Raises AssertionError if it needs more time than SECONDS, or its process is killed.
        """
        self._pool = self._pool or ProcessPoolExecutor(1, get_context("spawn"))
        future = self._pool.submit(_limited, function, *arguments, **options)
        try:
            return future.result(SECONDS)
        except (TimeoutError, BrokenProcessPool) as error:
            self.close()
            kind = type(error).__name__
            raise AssertionError(f"{function.__name__}{arguments}: {kind} {error}") from error

    def close(self) -> None:
        """Kill the process."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list(pool._processes.values()):
                process.kill()
            pool.shutdown(cancel_futures=True)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may have more bytes; SIGXFSZ is ignored by Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def open_guard() -> Iterator[Guard]:
    guard = Guard()
    try:
        yield guard
    finally:
        guard.close()


def _limited(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        return function(*arguments, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
