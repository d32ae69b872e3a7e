"""Write measured configurations as a TpuGraphs tuning record and as a competition's npz file.

The npz file is made from the record on disk, so both hold the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.program_space import ProgramSpace
from solution.domain.collection import collection
from solution.domain.labels import TIMED
from solution.programs.hlo.messages import MESSAGES
from solution.programs.hlo.records import read_module_file, write_record
from solution.programs.program import Program
from solution.system.files import replace_file


@dataclass(frozen=True)
class Place:
    """Where a program's files are stored: folder, collection, split."""

    folder: Path
    collection: str
    split: str

    def find(self, kind: str, name: str, suffix: str = "") -> Path:
        """Return the path of a program's file, such as pb/tile/xla/train/NAME.pb."""
        below = collection(self.collection).folder
        return self.folder / kind / below / self.split / f"{name}{suffix}"


@dataclass(frozen=True)
class Measured:
    """A configuration with its time; without a time if it failed."""

    config: np.ndarray  # (sites,)
    nanoseconds: int


def make_record(
    program: Program, space: ProgramSpace, measured: Sequence[Measured], source: str = TIMED
) -> Any:
    """Return the configurations as a message TuningRecord, in their order.

    Args:
        source: what the times come from: see solution.domain.labels.
    """
    record = MESSAGES["TuningRecord"](module=program.module, label_source=source)
    # An estimate does not need arguments, and some programs' cannot be drawn.
    record.fingerprint = int(program.digest if source == TIMED else program.module_digest, 16)
    if space.kind != "tile":
        record.config_index_to_node[:] = program.configurable.tolist()
    record.option_names[:] = space.option_names if space.option_choices else ()
    record.runs.extend(space.make_run(one.config, one.nanoseconds) for one in measured)
    return record


def write_graph(
    program: Program,
    space: ProgramSpace,
    measured: Sequence[Measured],
    place: Place,
    source: str = TIMED,
) -> tuple[Path, Path]:
    """Write the record and the npz file atomically; return their paths.

    Args:
        source: what the times come from: see solution.domain.labels.
    """
    path = place.find("pb", program.name, ".pb")
    data = make_record(program, space, measured, source).SerializeToString(deterministic=True)
    with replace_file(path) as temporary:
        temporary.write_bytes(data)
    (record,) = read_module_file(path, place.collection)
    return path, write_record(record, place.folder, place.split)


def has_graph(place: Place, name: str) -> bool:
    """Return True if a program's record and npz file exist."""
    return all(path.exists() for path in _list_files(place, name))


def remove_graph(place: Place, name: str) -> None:
    """Delete a program's record and npz file, which its changed journal no longer supports."""
    for path in _list_files(place, name):
        path.unlink(missing_ok=True)


def _list_files(place: Place, name: str) -> list[Path]:
    return [place.find(kind, name, f".{kind}") for kind in ("pb", "npz")]
