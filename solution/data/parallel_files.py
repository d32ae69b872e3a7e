"""Call a function for every file, in one worker process per core, with a progress bar in bytes.

Processes are used rather than threads because half of the work, encoding layouts and hashing rows,
holds the interpreter's lock.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from multiprocessing.sharedctypes import Synchronized
from typing import Protocol, TypeVar

from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.system.processes import SPAWN, count_cores, one_thread, open_pool
from solution.system.progress import byte_bars

# compressed bytes for which one more process pays: it takes half a second to start
BYTES_WORTH_A_WORKER = 4 << 20
POLL_SECONDS = 0.1
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class FileFunction(Protocol[R_co]):
    """A function of one file that reports the compressed bytes it reads to `advance`."""

    def __call__(self, file: GraphFile, advance: Advance) -> R_co: ...


def map_files(
    function: FileFunction[R],
    files: Sequence[GraphFile],
    description: str,
    workers: int | None = None,
    worth_a_worker: int = BYTES_WORTH_A_WORKER,
) -> list[R]:
    """Return function(file, advance) for each of `files`, in their order.

    The largest files are processed first.

    Args:
        function: defined at the top level of a module, so that worker processes can import it.
        workers: number of processes; by default one per core, or this process if files are small.
        worth_a_worker: bytes of files for which it pays to start one more process.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    sizes = [file.size for file in files]
    useful = -(-sum(sizes) // worth_a_worker)
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
        counter = SPAWN.Value("q", 0)
        with open_pool(count, _begin, counter) as pool:
            futures = {at: pool.submit(_work, function, files[at], sizes[at]) for at in order}
            for _ in _until_done(list(futures.values())):
                progress.update(task, completed=counter.value)
            return [futures[position].result() for position in range(len(files))]


def _track(function: FileFunction[R], file: GraphFile, size: int, advance: Advance) -> R:
    """Call the function; adjust the bytes that it reports, so that their sum is the file's size."""
    left = size

    def count_down(count: int) -> None:
        nonlocal left
        count = min(count, left)
        left -= count
        advance(count)

    result = function(file, count_down)
    count_down(left)
    return result


def _until_done(futures: list[Future[R]]) -> Iterator[None]:
    """Yield at least every POLL_SECONDS until all futures are done; raise the first error."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        yield


_counter: "Synchronized[int]"  # bytes read by all workers; set in each worker process


def _begin(counter: "Synchronized[int]") -> None:
    global _counter
    _counter = counter
    one_thread()


def _work(function: FileFunction[R], file: GraphFile, size: int) -> R:
    return _track(function, file, size, _advance)


def _advance(count: int) -> None:
    with _counter.get_lock():
        _counter.value += count
