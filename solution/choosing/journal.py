"""What a search has measured, on disk at every moment: a sealed file, written after each batch."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from solution.collecting.identity import ADVICE, check_identity
from solution.system.errors import InputError
from solution.system.files import make_folder, remove_leftovers, write_sealed
from solution.system.sealing import read_record

RECORD = "search.json"
FAILED = "failed"


@dataclass(frozen=True)
class Trial:
    """A configuration that was tried."""

    name: str
    choices: list[int]
    nanoseconds: float | None  # None: it is no working configuration
    note: str = ""  # why not
    seconds: float = 0.0  # that compiling, comparing and timing it took

    @property
    def time(self) -> float:
        """NaN where it has none."""
        return math.nan if self.nanoseconds is None else float(self.nanoseconds)


@dataclass
class Journal:
    """The trials by name, and where they are written."""

    folder: Path | None
    identity: Mapping[str, Any]
    trials: dict[str, Trial] = field(default_factory=dict)
    result: dict[str, Any] | None = None  # of a search that ended

    @classmethod
    def in_memory(cls) -> "Journal":
        """One that is not kept."""
        return cls(None, {})

    @classmethod
    def open(
        cls, folder: Path, identity: Mapping[str, Any], earlier: Mapping[str, Any] | None = None
    ) -> "Journal":
        """That of a folder, which is made.

        Args:
            identity: what must be the same where a search goes on.
            earlier: what of it stands for keys that older records do not have.

        Raises:
            InputError: another search stands there, or a damaged file.
        """
        make_folder(folder)
        remove_leftovers(folder)
        path = folder / RECORD
        if not path.exists():
            return cls(folder, identity)
        state = _read(path)
        check_identity(folder, {**(earlier or {}), **state["identity"]}, identity, "search")
        trials = {trial.name: trial for trial in state["trials"]}
        return cls(folder, identity, trials, state["result"])

    def write(self) -> None:
        """Write all of it down, atomically."""
        if self.folder is None:
            return
        record = {
            "identity": dict(self.identity),
            "trials": [asdict(trial) for trial in self.trials.values()],
            "result": self.result,
        }
        write_sealed(record, self.folder / RECORD)


def describe_failures(trials: Sequence[Trial]) -> str:
    """How many failed, and why most of them did; empty where none did."""
    notes = Counter(trial.note for trial in trials if trial.nanoseconds is None)
    if not notes:
        return ""
    ((note, _),) = notes.most_common(1)
    return f"{notes.total()} of {len(trials)} failed, most often because of this: {note}"


def _read(path: Path) -> dict[str, Any]:
    try:
        state = read_record(path, "a search")
    except InputError as error:
        raise InputError(f"{error} {ADVICE}") from error
    try:
        return {
            "identity": dict(state["identity"]),
            "trials": [Trial(**trial) for trial in state["trials"]],
            "result": state["result"],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: expected the record of a search, found another one. {ADVICE}"
        ) from error
