"""Record in origin.json what a run was last trained with: data, store, command, date, machine.

No result depends on it, so it is not part of the run's record and may change: the data may have
been moved, and the command may use another number of workers. Its paths are shown to people. Only
the path of the store is opened. The record of a stranger's run could name any path, but it is only
read, and only as a store, with checksums and with the graphs of this run
(solution.training.opening). That reveals no more than naming the path with --data would. Nothing
is written to these paths or run from them.
"""

import os
import platform
import shlex
import sys
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from solution.runs.folder import Run, find_stores
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.processes import count_cores
from solution.system.sealing import read_record

ORIGIN = "origin.json"
# the end of the sample's path, wherever the program is installed
BUNDLED = ("solution", "data", "sample")


@dataclass(frozen=True)
class Origin:
    """Where a run came from, as origin.json stores it; every field is text."""

    data: str  # the folder that the user gave
    store: str  # the folder of the prepared data
    command: str
    date: str  # the day, in UTC
    machine: str

    @property
    def is_sample(self) -> bool:
        """Whether the run learned from the bundled sample, or from a folder in it."""
        parts, size = Path(self.data).parts, len(BUNDLED)
        return any(parts[place : place + size] == BUNDLED for place in range(len(parts)))


def list_stores(run: Run) -> list[Path]:
    """Return the paths at which the run's store may be, the most likely first.

    They are the recorded path, if it is absolute, and the folder of that name among this machine's
    stores. A run without a record gets the store with the run's name.
    """
    origin = recall_origin(run)
    if origin is None:
        return [find_stores() / run.folder.resolve().name]
    recorded = Path(origin.store)
    ours = find_stores() / recorded.name
    return list(dict.fromkeys([recorded, ours] if recorded.is_absolute() else [ours]))


def remember_origin(run: Run, data: Path, store: Path) -> None:
    """Record that the run is now trained on `data` by the command of this process."""
    origin = Origin(
        data=_as_text(str(data.resolve())),
        store=_as_text(str(store.resolve())),
        command=_as_text(shlex.join(["fastslow", *sys.argv[1:]])),
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{count_cores()} cores, {platform.system()} {platform.machine()}",
    )
    write_sealed(asdict(origin), run.folder / ORIGIN)


def _as_text(name: str) -> str:
    """Return the name with bytes that are not valid text escaped, because records must be text."""
    return name.encode(errors="backslashreplace").decode()


def recall_command(run: Run, experiment: str | None = None) -> str:
    """Return the command that continues the run, for messages.

    Args:
        experiment: an experiment that the command should train as well.
    """
    origin = recall_origin(run)
    command = (
        origin.command
        if origin
        else shlex.join(["fastslow", "run", "DATA", "--run", str(run.folder)])
    )
    if experiment is None or experiment in shlex.split(command):
        return command
    return f"{command} {shlex.join(['--experiment', experiment])}"


def recall_origin(run: Run) -> Origin | None:
    """Return what the run was last trained with; None if it has no such record.

    Raises InputError if the record is damaged.
    """
    path = run.folder / ORIGIN
    if not os.path.lexists(path):
        return None
    try:
        found = read_record(path, "where a run comes from")
    except InputError as error:
        raise InputError(f"{error} Delete the file: it decides nothing.") from error
    names = [field.name for field in fields(Origin)]
    if any(not isinstance(found.get(name), str) for name in names):
        raise InputError(f"{path}: expected {', '.join(names)} as text. Delete the file.")
    return Origin(**{name: found[name] for name in names})
