"""Run tasks in several processes of this machine, which share its cores and GPUs."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from threadpoolctl import threadpool_limits

from solution.runs.folder import Run
from solution.system.accelerators import CORES_OF_A_FIT, find_smallest_memory
from solution.system.processes import (
    LIBRARIES,
    available_memory,
    choose_context,
    count_cores,
    count_gpus,
    interrupted_later,
    open_pool,
)
from solution.training.executors.base import (
    BYTES_OF_A_WORKER,
    Keep,
    Screen,
    Task,
    Throttled,
    Work,
    forget,
)
from solution.training.jobs import Job, split_loaded
from solution.training.plan import Plan
from solution.training.sites import train_here
from solution.training.watch import Watch

BYTES_ON_A_GPU = 4 << 30  # GPU memory of a fit, including what CUDA itself needs
POLL_SECONDS = 0.1
VISIBLE = "CUDA_VISIBLE_DEVICES"


def count_slots() -> int:
    """Return how many models can be fitted at once: one per core, limited by memory. With GPUs, a
    fit takes CORES_OF_A_FIT cores, because CPU cores prepare its batches. GPU memory limits the
    number too, but each GPU gets at least one fit."""
    gpus, cores, memory = count_gpus(), count_cores(), available_memory()
    if gpus:
        cores = min(cores // CORES_OF_A_FIT, gpus * (find_smallest_memory() // BYTES_ON_A_GPU))
    return max(1, gpus, min(cores, memory // BYTES_OF_A_WORKER))


@dataclass(frozen=True)
class LocalExecutor:
    """An executor that uses processes of this machine, or only this process if one is enough."""

    workers: int | None = None  # number of processes; None: the number that count_slots returns

    @property
    def is_away(self) -> bool:
        return False

    @property
    def gpu_share(self) -> float:
        return 0.0  # no share is requested, because each process sees one GPU

    @property
    def slots(self) -> int:
        return self.workers or count_slots()

    def open(self) -> AbstractContextManager[object]:
        """Do nothing: no state is kept between two calls of `run`."""
        return nullcontext()

    def train(self, jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch) -> None:
        """Train jobs; see Executor. Experiments made in memory are trained in this process."""
        loaded, made = split_loaded(jobs)
        train_here(self, loaded, plan, run, watch)
        train_here(LocalExecutor(1), made, plan, run, watch)

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = forget) -> None:
        """Run all tasks; see Executor."""
        count = min(self.slots, len(tasks))
        if count > 1:
            _run_apart(work, tasks, watch, keep, count)
            return
        for number, task in enumerate(tasks):
            with watch.job(task.name) as report:
                result = work(*task.arguments, report)
            keep(number, result)
            watch.advance()


HERE = LocalExecutor()


def _run_apart(work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep, count: int) -> None:
    context = choose_context(otherwise=LIBRARIES)
    messages, slots = context.Queue(), context.Value("i", 0)
    screen = Screen(watch, [task.name for task in tasks])
    begin = (_begin, messages, slots, count, count_gpus(), work)
    with screen, open_pool(count, *begin, context=context) as pool:
        with interrupted_later():
            running = {
                pool.submit(_work, number, task.arguments): number
                for number, task in enumerate(tasks)
            }
        while running:
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            while not messages.empty():
                screen.show(*messages.get())
            for future in done:
                number = running.pop(future)
                keep(number, future.result())
                screen.finish(number)


# queue of progress reports to the parent process; set in each worker process
_messages: "Queue[tuple[int, tuple[Any, ...], dict[str, Any]]]"
_task_work: Work


def _begin(
    messages: "Queue[Any]", slots: "Synchronized[int]", count: int, gpus: int, work: Work
) -> None:
    global _messages, _task_work
    _messages, _task_work = messages, work
    # let this worker exit with unread messages, because the parent reads none after the last result
    _messages.cancel_join_thread()
    with slots.get_lock():
        slot, slots.value = slots.value, slots.value + 1
    threads = max(1, count_cores() // count)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are imported later
    limit_threads(threads)
    if gpus:
        os.environ[VISIBLE] = choose_gpu(slot, gpus, os.environ.get(VISIBLE))


def limit_threads(threads: int) -> None:
    """Limit the threads of libraries that are already imported, as they are in a forked process."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    threadpool_limits(limits=threads)


def choose_gpu(slot: int, gpus: int, visible: str | None) -> str:
    """Return the name or number of the GPU that worker number `slot` uses. `gpus`: how many there
    are; `visible`: their names, separated by commas, or None."""
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return names[slot % gpus]


def _work(number: int, arguments: tuple[Any, ...]) -> Any:
    report = Throttled(lambda *facts, **more: _messages.put((number, facts, more)))
    report.begin()
    return _task_work(*arguments, report)
