"""Write measured configurations as a TpuGraphs tuning record, and as the competition's npz file.

The npz file is made from the record on disk, so both hold the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.program_space import ProgramSpace
from solution.domain.collection import collection
from solution.domain.graph import TIMED
from solution.programs.hlo.messages import MESSAGES
from solution.programs.hlo.records import read_module_file, write_record
from solution.programs.program import Program
from solution.system.files import write_bytes

# a configuration (sites,), and its measured or estimated nanoseconds; 0: it failed
Measured = tuple[np.ndarray, int]


@dataclass(frozen=True)
class Destination:
    """Where a program's files are stored: folder, collection, split."""

    folder: Path
    collection: str
    split: str

    def find(self, kind: str, name: str, suffix: str = "") -> Path:
        """Return the path of a program's file, such as pb/tile/xla/train/NAME.pb."""
        below = collection(self.collection).folder
        return self.folder / kind / below / self.split / f"{name}{suffix}"


def make_record(
    program: Program, space: ProgramSpace, measured: Sequence[Measured], source: str = TIMED
) -> Any:
    """Return a program's measured configurations, in order, as a message TuningRecord. `source`:
    what made the labels, see solution.domain.graph."""
    record = MESSAGES["TuningRecord"](module=program.module, label_source=source)
    # estimates do not depend on the program's arguments, so their fingerprint leaves these out
    record.fingerprint = int(program.digest if source == TIMED else program.module_digest, 16)
    if space.kind != "tile":
        record.config_index_to_node[:] = program.configurable.tolist()
    record.option_names[:] = space.option_names if space.option_choices else ()
    record.runs.extend(space.make_run(*one) for one in measured)
    return record


def write_graph(
    program: Program,
    space: ProgramSpace,
    measured: Sequence[Measured],
    destination: Destination,
    source: str = TIMED,
) -> tuple[Path, Path]:
    """Write a program's record and npz file atomically; return both paths."""
    path = destination.find("pb", program.name, ".pb")
    data = make_record(program, space, measured, source).SerializeToString(deterministic=True)
    write_bytes(data, path)
    (record,) = read_module_file(path, destination.collection)
    return path, write_record(record, destination.folder, destination.split)


def has_graph(destination: Destination, name: str) -> bool:
    """Return True if a program's record and npz file exist."""
    return all(destination.find(kind, name, f".{kind}").exists() for kind in ("pb", "npz"))


def remove_graph(destination: Destination, name: str) -> None:
    """Delete a program's record and npz file if they exist: they no longer match its journal."""
    for kind in ("pb", "npz"):
        destination.find(kind, name, f".{kind}").unlink(missing_ok=True)
