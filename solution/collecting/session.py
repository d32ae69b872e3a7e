"""Collect several programs in turn within a time limit, on this machine or another one."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from solution.collecting.collect import ProgramCollection, Settings
from solution.collecting.journal import Journal
from solution.collecting.program_space import ProgramSpace
from solution.collecting.records import Destination
from solution.collecting.target import LabelWorkers, Tell
from solution.collecting.tpu.target import TpuTarget
from solution.programs.child import ChildDiedError
from solution.programs.compiler import check_installed
from solution.programs.given import give_arguments
from solution.programs.program import Program, name_program, read_programs
from solution.system.errors import InputError
from solution.system.files import locked, make_folder
from solution.system.progress import bars, warn
from solution.system.report import Report
from solution.system.zips import pack_folder, unpack_folder

LEAST_SECONDS = 10.0  # minimum time limit of a program, even if the time for all programs is over


@dataclass(frozen=True)
class Finished:
    """The outcome of a program's collection: its summary, or why it failed."""

    name: str
    state: dict[str, Any]  # the summary in the program's journal; empty if the collection failed
    defect: str = ""  # why the collection failed; "" if it did not


def collect_programs(
    paths: Sequence[Path],
    make_space: Callable[[Program], ProgramSpace],
    destination: Destination,
    settings: Settings,
    minutes: float,
) -> list[Finished]:
    """Collect all programs of the files within `minutes`. A file or program that fails does not
    stop the others, and its unused time goes to the next programs. Raises InputError if jax is
    missing, two programs have one name, or another process uses the folder."""
    check_installed()
    make_folder(destination.folder)
    deadline = time.monotonic() + 60 * minutes
    with (
        locked(destination.folder, "Wait for it, or choose another --out."),
        settings.target.open_workers(settings.limits) as workers,
        bars() as progress,
    ):
        programs, finished = read_all(paths, workers, settings)
        check_names([program.name for program in programs])
        if settings.arguments is not None and (programs or len(paths) > 1):
            programs = [_give(programs, settings, failed=len(finished))]
        for program, limited in share_time(programs, settings, deadline):
            for words in program.notes:
                warn(f"{program.name}: {words}")
            bar = Bar(progress, program.name, limited)
            one = collect_one(program, make_space, destination, limited, workers, bar, bar.follow)
            bar.end(one)
            finished.append(one)
    return finished


def _give(programs: Sequence[Program], settings: Settings, failed: int) -> Program:
    """Return the program, with the user's arguments; InputError if there is not exactly one, those
    that could not be read included (`failed`)."""
    if len(programs) + failed != 1:
        raise InputError(
            f"{settings.arguments}: --arguments are for one program, found "
            f"{len(programs) + failed}. Collect it alone."
        )
    return give_arguments(programs[0], settings.arguments, settings.limits.megabytes)


def read_all(
    paths: Sequence[Path], workers: LabelWorkers, settings: Settings
) -> tuple[list[Program], list[Finished]]:
    """Return the programs of the files, lowered for the target's platform, and an outcome for each
    file that cannot be read."""
    programs, failed = [], []
    for path in paths:
        read = read_programs(
            path, workers.compiling, settings.wanted, platform=settings.target.platform
        )
        try:
            programs.extend(list(read))
        except InputError as error:
            failed.append(Finished(name_program(path), {}, str(error)))
    return programs, failed


def share_time(
    programs: Sequence[Program], settings: Settings, deadline: float
) -> Iterator[tuple[Program, Settings]]:
    """Yield each program with an equal share of the time left, LEAST_SECONDS at least."""
    for number, program in enumerate(programs):
        left = (deadline - time.monotonic()) / (len(programs) - number)
        yield program, replace(settings, seconds=max(LEAST_SECONDS, left))


class Bar:
    """The progress bar of a program. It shows the current work, and of the configurations wanted
    those that the compiler took (for a TPU), or of the time limit the elapsed seconds (for a CPU,
    where a collection also ends if the order of the runtimes is settled)."""

    def __init__(self, progress: Progress, name: str, settings: Settings) -> None:
        self._progress, self._begin = progress, time.monotonic()
        self._journal: Journal | None = None
        self._counts = settings.target.platform == TpuTarget.platform
        self._total = settings.configs if self._counts else round(settings.seconds)
        self._task = progress.add_task(name, total=self._total, note="")

    def follow(self, journal: Journal) -> None:
        """Count the configurations of this journal from now on."""
        self._journal = journal

    def __call__(self, note: str) -> None:
        self._progress.update(self._task, completed=self._count(), note=note)

    def end(self, finished: Finished) -> None:
        """Show the outcome: a full bar only if the collection neither failed nor was cut."""
        done = self._count()
        self._progress.update(self._task, completed=done)
        if not finished.defect and not finished.state.get("cut"):
            # fewer configurations than wanted, if the program has no more
            total = done if self._counts else self._total
            self._progress.update(self._task, completed=total, total=total)

    def _count(self) -> int:
        if self._counts:
            return 0 if self._journal is None else len(self._journal.sound())
        return round(time.monotonic() - self._begin)


def collect_one(
    program: Program,
    make_space: Callable[[Program], ProgramSpace],
    destination: Destination,
    settings: Settings,
    workers: LabelWorkers,
    tell: Tell,
    follow: Callable[[Journal], None] | None = None,
) -> Finished:
    """Collect a program; return its outcome even if it failed. `tell` gets descriptions of the
    current work; `follow`, if any, the journal that is filled."""
    try:
        collection = ProgramCollection(program, make_space(program), destination, settings, workers)
        if follow is not None:
            follow(collection.journal)
        return Finished(program.name, collection.run(tell))
    except ChildDiedError as error:
        defect = (
            f"{program.name}: the timing process died twice: {error}. All measurements are kept, "
            "and the same command resumes."
        )
    except InputError as error:
        defect = str(error)
    tell("failed")
    return Finished(program.name, {}, defect)


def check_names(names: Sequence[str]) -> None:
    """Raise InputError if two programs have the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"Expected programs of different names, found {', '.join(twice)} more than once. "
            "Rename a file: the graph gets its name."
        )


@dataclass(frozen=True)
class Collector:
    """A collection job for another machine; `destination.folder` is replaced by a temporary one."""

    make_space: Callable[[Program], ProgramSpace]
    destination: Destination
    settings: Settings

    def __call__(
        self, name: str, content: bytes, log: bytes | None, seconds: float, report: Report
    ) -> tuple[list[Finished], bytes]:
        """Collect the programs of a file (its name and content) within `seconds`; return their
        outcomes, and a zip of the files written. `log`: a zip of an earlier collection's log, to
        resume the program named like the file. `report` gets elapsed seconds, their limit, and a
        description of the current work."""
        check_installed()
        with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
            path = Path(scratch) / name
            path.write_bytes(content)
            out = Path(scratch) / "out"
            destination = replace(self.destination, folder=out)
            if log is not None:
                unpack_folder(log, destination.find("log", name_program(path)))
            try:
                found = self._collect(path, destination, time.monotonic() + seconds, report)
            except InputError as error:  # name the user's file instead of the temporary one
                raise InputError(str(error).replace(str(path), name)) from error
            finished = [replace(one, defect=one.defect.replace(str(path), name)) for one in found]
            out.mkdir(exist_ok=True)
            return finished, pack_folder(out)

    def _collect(
        self, path: Path, destination: Destination, deadline: float, report: Report
    ) -> list[Finished]:
        begin, settings = time.monotonic(), self.settings

        def tell(note: str) -> None:
            report(round(time.monotonic() - begin), round(deadline - begin), note)

        with settings.target.open_workers(settings.limits, processes=1) as workers:
            programs, failed = read_all([path], workers, settings)
            check_names([program.name for program in programs])
            return failed + [
                collect_one(program, self.make_space, destination, limited, workers, tell)
                for program, limited in share_time(programs, self.settings, deadline)
            ]
