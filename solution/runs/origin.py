"""What a run was last trained with: origin.json in its folder.

It decides nothing, so it stands beside the record of the run and may change: the data may have been
moved, the command may have another number of workers. Its paths are shown to people. Only that of
the store is opened, although the record of a stranger's run could name any: it is only read, and
only as a store, sealed and with the graphs that the run has (solution.training.run_store), which
tells nobody more than naming it with --data would. Nothing is written or run where a path leads.
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
BUNDLED = ("solution", "data", "sample")  # where the sample lies, wherever the program is


@dataclass(frozen=True)
class Origin:
    """All of it as text."""

    data: str  # the folder that was given
    store: str  # the folder of what was made of it
    command: str
    date: str  # of the day, in UTC
    machine: str

    @property
    def is_sample(self) -> bool:
        """Whether it learned from the bundled sample, or from a folder in it."""
        parts, size = Path(self.data).parts, len(BUNDLED)
        return any(parts[place : place + size] == BUNDLED for place in range(len(parts)))


def list_stores(run: Run) -> list[Path]:
    """Where the store of the run may be: where it was, then ours of that name.

    Where the run does not say, the one of its own name.
    """
    origin = recall_origin(run)
    if origin is None:
        return [find_stores() / run.folder.resolve().name]
    recorded = Path(origin.store)
    ours = find_stores() / recorded.name
    return list(dict.fromkeys([recorded, ours] if recorded.is_absolute() else [ours]))


def remember_origin(run: Run, data: Path, store: Path) -> None:
    """The run is being trained now, by this very command, on `data`."""
    origin = Origin(
        data=_as_text(str(data.resolve())),
        store=_as_text(str(store.resolve())),
        command=_as_text(shlex.join(["fastslow", *sys.argv[1:]])),
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{count_cores()} cores, {platform.system()} {platform.machine()}",
    )
    write_sealed(asdict(origin), run.folder / ORIGIN)


def _as_text(name: str) -> str:
    """The name with bytes that are no text as escapes: a record that held them is refused."""
    return name.encode(errors="backslashreplace").decode()


def recall_command(run: Run, experiment: str | None = None) -> str:
    """The command that goes on with the run, as a message gives it.

    Args:
        experiment: what it should train as well.
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
    """What the run was last trained with; None where it does not say.

    Raises InputError where the record is damaged.
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
