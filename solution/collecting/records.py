"""What was measured, as a tuning record of TpuGraphs and as an npz file of the competition.

The npz file is made from the record as it lies on the disk, so both say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.program import Program
from solution.collecting.spaces import CompilerSpace, make_run
from solution.data.hlo.messages import MESSAGES
from solution.data.hlo.records import read_module_file
from solution.data.hlo.writing import write_record
from solution.domain.collection import collection
from solution.domain.labels import TIMED
from solution.system.files import replace_file


@dataclass(frozen=True)
class Place:
    """Where a program's files go: a folder, a collection, a split."""

    folder: Path
    collection: str
    split: str

    def find(self, kind: str, name: str, suffix: str = "") -> Path:
        """The path of a program's file of the kind, such as pb/tile/xla/train/NAME.pb."""
        below = collection(self.collection).folder
        return self.folder / kind / below / self.split / f"{name}{suffix}"


@dataclass(frozen=True)
class Measured:
    """A configuration with its time; one without failed."""

    values: np.ndarray
    nanoseconds: int


def make_record(
    program: Program, space: CompilerSpace, measured: Sequence[Measured], source: str = TIMED
) -> Any:
    """The message TuningRecord of the configurations, in their order.

    Args:
        source: who says how long they take, of solution.domain.labels.
    """
    record = MESSAGES["TuningRecord"](module=program.module, label_source=source)
    # Arguments have no part in an estimate, and of some programs nobody could draw them.
    record.fingerprint = int(program.digest if source == TIMED else program.module_digest, 16)
    if configuration_kind(space) != "tile":
        record.config_index_to_node[:] = program.configurable.tolist()
    record.option_names[:] = getattr(space, "option_names", ())
    for one in measured:
        is_default = np.array_equal(one.values, space.default)
        record.runs.append(make_run(space, one.values, one.nanoseconds, is_default=is_default))
    return record


def configuration_kind(space: CompilerSpace) -> str:
    """What a configuration consists of: layout, tile or options."""
    probe = MESSAGES["Run"]()
    space.write(space.default, probe)
    if probe.HasField("options"):
        return "options"
    return str(probe.WhichOneof("configuration"))


def write_graph(
    program: Program,
    space: CompilerSpace,
    measured: Sequence[Measured],
    place: Place,
    source: str = TIMED,
) -> tuple[Path, Path]:
    """Write record and npz file, atomically; their paths.

    Args:
        source: who says how long the configurations take, of solution.domain.labels.
    """
    path = place.find("pb", program.name, ".pb")
    data = make_record(program, space, measured, source).SerializeToString(deterministic=True)
    with replace_file(path) as temporary:
        temporary.write_bytes(data)
    (record,) = read_module_file(path, place.collection)
    return path, write_record(record, place.folder, place.split)


def has_graph(place: Place, name: str) -> bool:
    """Whether what write_graph wrote of a program is still there."""
    return all(path.exists() for path in _list_files(place, name))


def remove_graph(place: Place, name: str) -> None:
    """Remove what write_graph wrote of a program: its log says something else now."""
    for path in _list_files(place, name):
        path.unlink(missing_ok=True)


def _list_files(place: Place, name: str) -> list[Path]:
    return [place.find(kind, name, f".{kind}") for kind in ("pb", "npz")]
