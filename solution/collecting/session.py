"""Collect several programs one after the other, within a time, with one line on how far it is."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from solution.collecting.children import Child, choose_core
from solution.collecting.collect import Collection, Settings, Workers
from solution.collecting.compiler import check_installed
from solution.collecting.program import Program, read_programs
from solution.collecting.records import Place
from solution.collecting.spaces import Space
from solution.system.errors import InputError
from solution.system.files import locked
from solution.system.progress import bars

LEAST_SECONDS = 10.0  # for a program, however late it is


@dataclass(frozen=True)
class Finished:
    """What became of a program."""

    name: str
    state: dict[str, Any]  # of its journal; empty where it failed
    defect: str = ""


def collect_programs(
    paths: Sequence[Path],
    make_space: Callable[[Program], Space],
    place: Place,
    settings: Settings,
    minutes: float,
) -> list[Finished]:
    """Collect the programs of all files; one that fails does not stop the others.

    Args:
        minutes: for all of them; what one does not use is left to those after it.

    Raises:
        InputError: jax is not installed, a file holds no program, or another process is at work
            in the folder.
    """
    check_installed()
    place.folder.mkdir(parents=True, exist_ok=True)
    core = choose_core()
    deadline = time.monotonic() + 60 * minutes
    with (
        locked(place.folder, "Wait for it, or choose another --out."),
        Child(settings.limits, core) as compiling,
        Child(settings.limits, core) as timing,
        bars() as progress,
    ):
        workers = Workers(compiling, timing)
        programs = [program for path in paths for program in read_programs(path, compiling)]
        _check_names(programs)
        finished = []
        for number, program in enumerate(programs):
            seconds = max(LEAST_SECONDS, (deadline - time.monotonic()) / (len(programs) - number))
            own = replace(settings, seconds=seconds)
            task = progress.add_task(program.name, total=round(seconds), note="")
            finished.append(_collect(program, make_space, place, own, workers, progress, task))
            progress.update(task, completed=round(seconds))
    return finished


def _collect(
    program: Program,
    make_space: Callable[[Program], Space],
    place: Place,
    settings: Settings,
    workers: Workers,
    progress: Progress,
    task: TaskID,
) -> Finished:
    begin = time.monotonic()

    def tell(note: str) -> None:
        progress.update(task, completed=round(time.monotonic() - begin), note=note)

    try:
        space = make_space(program)
        return Finished(
            program.name, Collection(program, space, place, settings, workers).run(tell)
        )
    except InputError as error:
        tell("failed")
        return Finished(program.name, {}, str(error))


def _check_names(programs: Sequence[Program]) -> None:
    names = [program.name for program in programs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"Expected programs of different names, found {', '.join(twice)} more than once. "
            "Rename a file: it names the graph."
        )
