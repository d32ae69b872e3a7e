"""Tasks in several processes of this machine at once, each with its own GPU or share of the
cores."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from threadpoolctl import threadpool_limits

from solution.system.processes import available_memory, count_cores, fork_server, open_pool
from solution.system.report import Report
from solution.training.executors.base import Task, Work
from solution.training.watch import Watch

BYTES_OF_A_WORKER = 5 << 30  # tables of the whole tile collection take most of it
POLL_SECONDS = 0.1
REPORT_SECONDS = 0.1  # of a task: who watches cannot read faster, and a queue takes only so much
VISIBLE = "CUDA_VISIBLE_DEVICES"
# What workers import that learn trees and tables, and more for nets, which takes six seconds. Not
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
NETS = ("lightning_fabric", "safetensors.torch", "torch", "torch_geometric.nn")
STACK = LIBRARIES + NETS


def choose_libraries() -> tuple[str, ...]:
    """What the workers will use: that of nets where it is imported here, as a net's settings do."""
    return STACK if "torch" in sys.modules else LIBRARIES


def count_slots() -> int:
    """How many models can be fitted at once: as many as GPUs, or cores that have enough memory."""
    gpus = count_gpus()
    if gpus:
        return gpus
    return max(1, min(count_cores(), available_memory() // BYTES_OF_A_WORKER))


def count_gpus() -> int:
    """The GPUs for nets; none where nothing that would use them is imported."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.device_count()) if torch is not None else 0


@dataclass(frozen=True)
class LocalExecutor:
    """Processes of this machine, or this very process where one is enough."""

    workers: int | None = None  # at once; None: one a GPU, or a core with enough memory

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch) -> None:
        """Do all tasks; see Executor."""
        count = min(self.workers or count_slots(), len(tasks))
        if count > 1:
            _run_apart(work, tasks, watch, count)
            return
        for task in tasks:
            with watch.job(task.name) as report:
                work(*task.arguments, report)
            watch.advance()


def _run_apart(work: Work, tasks: Sequence[Task], watch: Watch, count: int) -> None:
    context = fork_server(choose_libraries())
    messages, slots = context.Queue(), context.Value("i", 0)
    screen = _Screen(watch, [task.name for task in tasks])
    begin = (_begin, messages, slots, count, count_gpus(), work)
    with screen, open_pool(count, *begin, context=context) as pool:
        running = {
            pool.submit(_work, number, task.arguments): number for number, task in enumerate(tasks)
        }
        while running:
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            while not messages.empty():
                screen.show(*messages.get())
            for future in done:
                future.result()
                screen.finish(running.pop(future))


class _Screen(ExitStack):
    """The tasks that are being watched."""

    def __init__(self, watch: Watch, names: Sequence[str]) -> None:
        super().__init__()
        self._watch, self._names = watch, names
        self._open: dict[int, tuple[ExitStack, Report]] = {}
        self._finished: set[int] = set()

    def show(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Take note of what a task reported; nothing: that it was begun."""
        if number in self._finished:  # a message may arrive after the result
            return
        if number not in self._open:
            stack = self.enter_context(ExitStack())
            self._open[number] = stack, stack.enter_context(self._watch.job(self._names[number]))
        if facts:
            self._open[number][1](*facts, **more)

    def finish(self, number: int) -> None:
        """The task is done."""
        self.show(number, (), {})
        self._open[number][0].close()
        self._finished.add(number)
        self._watch.advance()


_messages: "Queue[tuple[int, tuple[Any, ...], dict[str, Any]]]"  # of a worker process
_task_work: Work


def _begin(
    messages: "Queue[Any]", slots: "Synchronized[int]", count: int, gpus: int, work: Work
) -> None:
    global _messages, _task_work
    _messages, _task_work = messages, work
    # Nobody reads once the last result is there: a worker must not wait for that to end.
    _messages.cancel_join_thread()
    with slots.get_lock():
        slot, slots.value = slots.value, slots.value + 1
    threads = max(1, count_cores() // count)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded from now on
    limit_threads(threads)
    if gpus:
        os.environ[VISIBLE] = choose_gpu(slot, gpus, os.environ.get(VISIBLE))


def limit_threads(threads: int) -> None:
    """For libraries that are loaded already, as in a process that was forked with them."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    threadpool_limits(limits=threads)


def choose_gpu(slot: int, gpus: int, visible: str | None) -> str:
    """The GPU of the worker number `slot`: one of those that may be used, by name or number."""
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return names[slot % gpus]


def _work(number: int, arguments: tuple[Any, ...]) -> None:
    report = _Throttled(lambda *facts, **more: _messages.put((number, facts, more)))
    report.begin()
    _task_work(*arguments, report)


class _Throttled:
    """A Report that passes on ten reports a second, and every best score."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._next = 0.0
        self._best: float | None = None

    def begin(self) -> None:
        """The task is begun."""
        self._send()

    def __call__(
        self,
        done: int,
        total: int,
        note: str = "",
        score: float | None = None,
        **facts: Any,
    ) -> None:
        """Pass it on, or not."""
        is_best = score is not None and (self._best is None or score > self._best)
        now = time.monotonic()
        if is_best or now >= self._next:
            self._best = score if is_best else self._best
            self._next = now + REPORT_SECONDS
            self._send(done, total, note, score, **facts)
