"""Watched work in several processes at once, each with its own GPU or its share of the cores."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from solution.system.processes import CONTEXT, available_memory, count_cores, open_pool
from solution.system.report import Report
from solution.training.watch import Watch

BYTES_OF_A_WORKER = 5 << 30  # tables of the whole tile collection take most of it
POLL_SECONDS = 0.1
VISIBLE = "CUDA_VISIBLE_DEVICES"


def count_places() -> int:
    """How many models can be fitted at once: as many as GPUs, or cores that have enough memory."""
    gpus = count_gpus()
    if gpus:
        return gpus
    return max(1, min(count_cores(), available_memory() // BYTES_OF_A_WORKER))


def count_gpus() -> int:
    """The GPUs for nets; none where nothing that would use them is imported."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.device_count()) if torch is not None else 0


def run_watched(
    function: Callable[..., None],
    tasks: Sequence[tuple[str, tuple[Any, ...]]],
    watch: Watch,
    count: int,
    begin: Callable[..., None],
    *shared: Any,
) -> None:
    """Call `function(*arguments, report)` for each task in one of `count` processes.

    Args:
        function: at the top level of a module, so that other processes find it.
        tasks: names to watch them by, and arguments; begun in this order.
        begin: called once in every process with `shared`.

    Raises:
        InputError: a process was killed; or whatever the function raises, the others ended.
    """
    messages, places = CONTEXT.Queue(), CONTEXT.Value("i", 0)
    screen = _Screen(watch, [name for name, _ in tasks])
    arguments = (messages, places, count, count_gpus(), begin, *shared)
    with screen, open_pool(count, _begin, *arguments) as pool:
        running = {
            pool.submit(_work, function, number, own): number
            for number, (_, own) in enumerate(tasks)
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
            own = self.enter_context(ExitStack())
            self._open[number] = own, own.enter_context(self._watch.unit(self._names[number]))
        if facts:
            self._open[number][1](*facts, **more)

    def finish(self, number: int) -> None:
        """The task is done."""
        self.show(number, (), {})
        self._open[number][0].close()
        self._finished.add(number)
        self._watch.advance()


_messages: "Queue[tuple[int, tuple[Any, ...], dict[str, Any]]]"  # of a worker process


def _begin(
    messages: "Queue[Any]",
    places: "Synchronized[int]",
    count: int,
    gpus: int,
    begin: Callable[..., None],
    *shared: Any,
) -> None:
    global _messages
    _messages = messages
    with places.get_lock():
        place, places.value = places.value, places.value + 1
    os.environ["OMP_NUM_THREADS"] = str(max(1, count_cores() // count))
    if gpus:
        os.environ[VISIBLE] = choose_gpu(place, gpus, os.environ.get(VISIBLE))
    begin(*shared)


def choose_gpu(place: int, gpus: int, visible: str | None) -> str:
    """The GPU of the worker number `place`: one of those that may be used, by name or number."""
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return names[place % gpus]


def _work(function: Callable[..., None], number: int, arguments: tuple[Any, ...]) -> None:
    def report(*facts: Any, **more: Any) -> None:
        _messages.put((number, facts, more))

    report()
    function(*arguments, report)
