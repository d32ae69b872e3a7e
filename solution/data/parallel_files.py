"""Call a function for every file, in one worker process per core, with a progress bar in bytes.

Processes are used rather than threads because half of the work, encoding layouts and hashing rows,
holds the interpreter's lock.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

from solution.data.folders import GraphFile
from solution.system.processes import count_cores, one_thread, open_pool
from solution.system.progress import byte_bars

# compressed bytes of files for which one more process pays: it takes half a second to start
BYTES_WORTH_A_WORKER = 4 << 20
R = TypeVar("R")


def map_files(
    function: Callable[[GraphFile], R],
    files: Sequence[GraphFile],
    description: str,
    workers: int | None = None,
    worth_a_worker: int = BYTES_WORTH_A_WORKER,
) -> list[R]:
    """Return function(file) for each of `files`, in their order.

    With several processes, the largest files are processed first.

    Args:
        function: defined at the top level of a module, so that worker processes can import it.
        workers: number of processes; None: one per core, fewer for small files. With one, this
            process does the work.
        worth_a_worker: bytes of files for which one more process is started.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    sizes = [file.size for file in files]
    useful = -(-sum(sizes) // worth_a_worker)
    count = workers or min(count_cores(), len(files), useful)
    found: dict[int, R] = {}
    with byte_bars() as progress:
        task = progress.add_task(description, total=sum(sizes), note="")
        if count <= 1:
            with one_thread():
                for position, file in enumerate(files):
                    found[position] = function(file)
                    progress.advance(task, sizes[position])
        else:
            order = sorted(range(len(files)), key=lambda position: -sizes[position])
            with open_pool(count, one_thread) as pool:
                futures = {pool.submit(function, files[position]): position for position in order}
                for future in as_completed(futures):
                    found[futures[future]] = future.result()
                    progress.advance(task, sizes[futures[future]])
    return [found[position] for position in range(len(files))]
