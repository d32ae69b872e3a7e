"""Start worker processes, choose their number, and end them.

A process with threads is never forked, because the child would inherit locks that nobody releases.
Workers that need few libraries are spawned. Workers that need libraries which take seconds to
import are forked from a server that has imported them and done nothing else, where the system
supports it.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from types import ModuleType
from typing import Any

import psutil
from threadpoolctl import ThreadpoolController

from solution.system.errors import InputError
from solution.system.memory import memory_left

Context = SpawnContext | ForkServerContext
SPAWN = multiprocessing.get_context("spawn")
# Modules that the fork server imports: LIBRARIES for trees and tables, and NETS for nets. polars is
# left out, because importing it starts threads.
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
NETS = (
    "lightning_fabric",
    "numba",
    "safetensors.torch",
    "torch",
    "torch._dynamo",  # torch imports it for the first optimizer, which takes two seconds
    "torch_geometric.nn",
)
STACK = LIBRARIES + NETS
UNCOLLECTED = "solution.system.uncollected"
# maximum length of the temporary folder's path, in which multiprocessing makes a socket: a socket's
# path has at most 107 bytes, and multiprocessing adds 33
LONGEST_FOLDER = 70
_STARTING = threading.Lock()


def count_cores() -> int:
    """Return the number of cores that this process may use, within the limits of a container."""
    import joblib  # imported here because it is slow, and prediction does not need it

    return int(joblib.cpu_count())


def available_memory() -> int:
    """Return the bytes of free memory, limited by what a container may still use."""
    free, left = int(psutil.virtual_memory().available), memory_left()
    return free if left is None else min(free, left)


def one_thread() -> AbstractContextManager[object]:
    """Limit matrix products to one thread: they are small, so more threads would mostly wait."""
    return ThreadpoolController().limit(limits=1, user_api="blas")


def fork_server(modules: Sequence[str]) -> Context:
    """Return a context whose workers are forked from a server that has imported `modules`.

    A process has only one server, so the first call decides what the server imports. No module may
    start a thread that others wait for, because a forked worker lacks this thread. Workers are
    spawned instead on macOS, whose frameworks must not be forked, and if the path of the temporary
    folder is too long for a socket in it.
    """
    if sys.platform == "darwin" or len(tempfile.gettempdir()) > LONGEST_FOLDER:
        return SPAWN
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([UNCOLLECTED, *modules])
    return context


def choose_context(otherwise: Sequence[str] = ()) -> Context:
    """Return the context in which workers start: forked from a server, or spawned.

    If this process has imported torch, the work may train nets, so the server imports the libraries
    of nets; otherwise it imports the modules `otherwise`. Workers are spawned if there is nothing
    to import, or if nets use a GPU: torch_geometric looks for one when it is imported, and CUDA
    cannot start in a process that is forked after that.
    """
    libraries = STACK if "torch" in sys.modules else otherwise
    return fork_server(libraries) if libraries and not count_gpus() else SPAWN


def count_gpus() -> int:
    """Return the number of GPUs that torch sees; 0 if torch is not imported."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.device_count()) if torch is not None else 0


@contextmanager
def open_pool(
    count: int, initializer: Callable[..., object], *arguments: Any, context: Context | None = None
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of workers; they are ended at once on an error, and when this process ends.

    Args:
        initializer: called once in every worker with `arguments`.
        context: how workers start; None: as `choose_context` decides.

    Raises:
        InputError: a worker was killed, as the system does when memory runs out.
    """
    context = context or choose_context()
    # give each worker this environment: the fork server may have an earlier one
    begin = (dict(os.environ), initializer, *arguments)
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=begin)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise InputError(
            "A worker process was killed, as the system does when memory runs out, or when a file "
            "that it reads was cut (`fastslow check STORE` names it). What is finished is kept: "
            "start again, with fewer --workers if it was memory."
        ) from error
    except BaseException:  # do not wait for running tasks, which may take hours
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, in which processes are started. A process that is
    still starting could not be ended, and would print an error after all other output."""
    # only the main thread gets signals, so other threads have nothing to delay
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
        # also after an error: Ctrl-C ends the server of processes, too, so that starting one fails
        if came and callable(answer):
            answer(came[0], None)


def start_child(
    target: Callable[..., None],
    *arguments: Any,
    context: Context | None = None,
) -> Any:
    """Start a process that calls `target`; it ends if this process ends or is killed.

    Args:
        target: a function of an importable module, not of the script that is run.
        arguments: picklable objects whose classes are in importable modules.
        context: how the process starts; None: as `choose_context` decides.
    """
    begin = (dict(os.environ), target, *arguments)
    process = (context or choose_context()).Process(target=_begin, args=begin, daemon=True)
    # Start multiprocessing's resource tracker before blocking Ctrl-C: starting it unblocks Ctrl-C.
    resource_tracker.ensure_running()
    with _no_script(), _interrupts_held():
        process.start()
    return process


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C in the block. A process started in the block holds it back until its
    `_begin` runs: earlier, Ctrl-C could end it in the middle of an import, with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_script() -> Iterator[None]:
    """Hide the running script from processes that are started in the block. Otherwise each of them
    would run the script again, and start further processes if the script lacks `if __name__ ==
    "__main__"`. A script read from stdin could not be found at all."""
    with _STARTING:  # a lock: another thread would otherwise take the empty module for the script
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def _begin(environment: dict[str, str], initializer: Callable[..., None], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # keep the garbage collector off imported objects, whose pages are shared with the server
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    """End this worker, and all processes that it has started, when its parent ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        with suppress(psutil.Error):
            for started in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    started.kill()
        os._exit(1)
