"""Collect the programs of one file where the folder of the collection may not be.

The work is done in a folder of its own, on a core of its own; what was written comes back as bytes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from solution.collecting.collect import Settings
from solution.collecting.compiler import check_installed
from solution.collecting.labelling import open_workers
from solution.collecting.program import Program, name_program
from solution.collecting.records import Place
from solution.collecting.session import Finished, check_names, collect_one, read_all, share_time
from solution.collecting.spaces import CompilerSpace
from solution.system.errors import InputError
from solution.system.parcel import pack_folder, unpack_folder
from solution.system.report import Report


@dataclass(frozen=True)
class Collector:
    """The work of a collection, on any machine.

    Args:
        make_space: what is configured; it is pickled.
        place: where the files will lie; its folder is not used.
    """

    make_space: Callable[[Program], CompilerSpace]
    place: Place
    settings: Settings

    def __call__(
        self, name: str, content: bytes, log: bytes | None, seconds: float, report: Report
    ) -> tuple[list[Finished], bytes]:
        """Collect the programs of a file; what became of them, and the files, packed.

        Args:
            log: of an earlier collection of the program that has the file's name, to go on from.
            seconds: for all programs of the file.
        """
        check_installed()
        with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
            path = Path(scratch) / name
            path.write_bytes(content)
            out = Path(scratch) / "out"
            place = replace(self.place, folder=out)
            if log is not None:
                unpack_folder(log, place.find("log", name_program(path)))
            try:
                finished = self._collect(path, place, time.monotonic() + seconds, report)
            except InputError as error:  # it names the file that is gone, not the user's
                raise InputError(str(error).replace(str(path), name)) from error
            out.mkdir(exist_ok=True)
            return finished, pack_folder(out)

    def _collect(self, path: Path, place: Place, deadline: float, report: Report) -> list[Finished]:
        begin, settings = time.monotonic(), self.settings

        def tell(note: str) -> None:
            report(round(time.monotonic() - begin), round(deadline - begin), note)

        with open_workers(settings.target, settings.limits, processes=1) as workers:
            programs = list(read_all(path, workers, settings))
            check_names([program.name for program in programs])
            return [
                collect_one(program, self.make_space, place, own, workers, tell)
                for program, own in share_time(programs, self.settings, deadline)
            ]
