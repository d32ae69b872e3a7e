"""Collect the programs of one file on a machine that has no access to the collection's folder.

The work is done in a temporary folder and on one core; the written files are returned as bytes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from solution.collecting.collect import Settings
from solution.collecting.labelling import open_workers
from solution.collecting.records import Place
from solution.collecting.session import Finished, check_names, collect_one, read_all, share_time
from solution.collecting.spaces import CompilerSpace
from solution.programs.compiler import check_installed
from solution.programs.program import Program, name_program
from solution.system.errors import InputError
from solution.system.report import Report
from solution.system.zips import pack_folder, unpack_folder


@dataclass(frozen=True)
class Collector:
    """A picklable collection job, for any machine.

    Args:
        make_space: makes the space of configurations; it is pickled.
        place: collection and split of the files; its folder is not used.
    """

    make_space: Callable[[Program], CompilerSpace]
    place: Place
    settings: Settings

    def __call__(
        self, name: str, content: bytes, log: bytes | None, seconds: float, report: Report
    ) -> tuple[list[Finished], bytes]:
        """Collect the programs of a file; return their outcomes and the files, as an archive.

        Args:
            log: files of an earlier collection of the program named like the file, to resume.
            seconds: time limit for all programs of the file.
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
            except InputError as error:  # the message names the temporary file, not the user's
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
