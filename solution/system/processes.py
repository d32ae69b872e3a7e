"""Worker processes: how they start, how many there may be, and how they end.

A process that has threads is never forked, for the fork would inherit locks that nobody opens.
Workers that need little are spawned. Those that need libraries which take seconds to import are
forked from a server that has imported them and done nothing else (where the system allows it).
"""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from types import ModuleType
from typing import Any

import psutil
from threadpoolctl import ThreadpoolController

from solution.system.container import memory_left
from solution.system.errors import InputError
from solution.system.mapping import EXIT_BAD_INPUT, name_cut_files

Context = SpawnContext | ForkServerContext
SPAWN = multiprocessing.get_context("spawn")
# What workers import that learn trees and tables, and more for nets, which takes seconds. Not
# polars: it begins threads when it is imported.
LIBRARIES = (
    "joblib",
    "lightgbm",
    "psutil",
    "pydantic",
    "rich.live",
    "rich.progress",
    "scipy.sparse",
    "scipy.stats",
    "threadpoolctl",
)
NETS = ("lightning_fabric", "numba", "safetensors.torch", "torch", "torch_geometric.nn")
STACK = LIBRARIES + NETS
LONGEST_END = 5.0  # seconds, of a worker that is ended
UNCOLLECTED = "solution.system.uncollected"
LONGEST_FOLDER = 70  # of the 107 bytes of a socket's path; multiprocessing adds 33
_STARTING = threading.Lock()


def count_cores() -> int:
    """The cores that this process may use, in a container too."""
    import joblib  # takes a while, and who only predicts does not ask

    return int(joblib.cpu_count())


def available_memory() -> int:
    """The bytes that are free, and that the container may still take."""
    free, left = int(psutil.virtual_memory().available), memory_left()
    return free if left is None else min(free, left)


def one_thread(libraries: ThreadpoolController | None = None) -> AbstractContextManager[object]:
    """Matrix products with one thread: they are thin, and threads would wait for each other.

    Args:
        libraries: those that multiply; by default those that are found now, which takes a while.
    """
    found = ThreadpoolController() if libraries is None else libraries
    return found.limit(limits=1, user_api="blas")


def fork_server(modules: Sequence[str]) -> Context:
    """Where workers start that have `modules` imported already.

    There is one server a process; the first call decides what it imports. None of the modules may
    begin threads that others wait for. On macOS, whose frameworks must not be forked, it spawns; so
    it does where the folder of temporary files has a longer name than a socket in it can have.
    """
    if sys.platform == "darwin" or len(tempfile.gettempdir()) > LONGEST_FOLDER:
        return SPAWN
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([UNCOLLECTED, *modules])
    return context


def choose_context(otherwise: Sequence[str] = ()) -> Context:
    """Where workers start: forked with what nets need where that is imported here, for the work may
    be theirs, and else with the libraries of `otherwise`; as new processes where it has none, or
    where nets compute on a GPU: torch_geometric looks for one when it is imported, and CUDA begins
    in no process that was forked from one which has."""
    libraries = STACK if "torch" in sys.modules else otherwise
    return fork_server(libraries) if libraries and not count_gpus() else SPAWN


def count_gpus() -> int:
    """The GPUs for nets; none where nothing that would use them is imported."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.device_count()) if torch is not None else 0


@contextmanager
def open_pool(
    count: int, initializer: Callable[..., None], *arguments: Any, context: Context | None = None
) -> Iterator[ProcessPoolExecutor]:
    """Workers that end at once where anything goes wrong, and with the process that began them.

    Args:
        initializer: called once in every worker with `arguments`.
        context: how they start; by default as `choose_context` says.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    context = context or choose_context()
    # A server may be older than what the environment says now.
    begin = (dict(os.environ), initializer, *arguments)
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=begin)
    try:
        yield pool
    except BrokenProcessPool as error:
        if _has_said_why(pool):
            raise InputError("A worker process met a file that was cut: see above.") from error
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


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Answer Ctrl-C after the block, in which processes are started.

    One that is half started is not known yet, so it could not be ended: it would say itself, and
    after all else, that it could not begin.
    """
    if threading.current_thread() is not threading.main_thread():  # it never gets the signal
        yield
        return
    came: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
    if came and callable(answer):
        answer(came[0], None)


def _has_said_why(pool: ProcessPoolExecutor) -> bool:
    """Whether a worker ended itself with a message."""
    workers = list(pool._processes.values())
    for worker in workers:
        worker.join(LONGEST_END)
    return any(worker.exitcode == EXIT_BAD_INPUT for worker in workers)


def start_child(
    target: Callable[..., None], *arguments: Any, context: Context | None = None
) -> Any:
    """Start a process that calls `target`; it ends with the one that began it, even by a kill.

    Args:
        target, arguments: of modules that can be imported, not of the script that is run.
        context: how it starts; by default as `choose_context` says.
    """
    begin = (dict(os.environ), target, *arguments)
    process = (context or choose_context()).Process(target=_begin, args=begin, daemon=True)
    resource_tracker.ensure_running()  # its own start would let Ctrl-C in again
    with _no_script(), _interrupts_held():
        process.start()
    return process


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back, here and in a process that is started, until that ignores it.

    It would end in the middle of an import, with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_script() -> Iterator[None]:
    """Hide the script that is run from a process that is started.

    It would run the script again, and where that has no `if __name__ == "__main__"` start another
    process; a script that came through stdin it would not even find.
    """
    with _STARTING:  # another thread would take the empty module for the script
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def _begin(environment: dict[str, str], initializer: Callable[..., None], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    gc.freeze()  # libraries stay: memory that is shared with their server is not written to
    gc.enable()
    name_cut_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that began them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
