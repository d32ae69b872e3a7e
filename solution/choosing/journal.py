"""Keep a search's measurements on disk: a file with a checksum, rewritten after each batch."""

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
CHOICES = "choices"  # key of a trial's configuration in the file


@dataclass(frozen=True)
class Trial:
    """A configuration that was measured, or estimated by a TPU's compiler, or failed."""

    name: str
    config: list[int]  # index of the chosen value for each site (parameter)
    nanoseconds: float | None  # None: the configuration failed
    note: str = ""  # why the configuration failed
    seconds: float = 0.0  # duration of compiling, comparing and timing it
    memory: int | None = None  # bytes that it takes in a TPU's memory; None: not known
    # processor time of compiling it for a TPU; of this, the passes over HLO took `passes_seconds`,
    # and code generation the rest; None: unknown
    processor_seconds: float | None = None
    passes_seconds: float | None = None

    @property
    def time(self) -> float:
        """Return nanoseconds, or NaN if the configuration failed."""
        return math.nan if self.nanoseconds is None else float(self.nanoseconds)

    def to_record(self) -> dict[str, Any]:
        """Return the trial as a dictionary for the file, where `config` is called "choices"."""
        record = asdict(self)
        return {CHOICES: record.pop("config"), **record}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Trial":
        """Return the trial that `to_record` turned into `record`. Raises KeyError or TypeError for
        another record."""
        rest = dict(record)
        return cls(config=rest.pop(CHOICES), **rest)


@dataclass
class Journal:
    """The trials and the result of a search: {configuration's name: trial}, and the file."""

    folder: Path | None  # None: the journal is not written to disk
    identity: Mapping[str, Any]  # the values that must be equal for the search to be resumed
    trials: dict[str, Trial] = field(default_factory=dict)
    result: dict[str, Any] | None = None  # the result of a finished search

    @classmethod
    def open(
        cls, folder: Path, identity: Mapping[str, Any], earlier: Mapping[str, Any] | None = None
    ) -> "Journal":
        """Open the folder's journal, or create one for the search with this `identity`. `earlier`:
        values for those entries of the identity that older journals lack. Raises InputError if the
        journal is damaged or belongs to another search."""
        make_folder(folder)
        remove_leftovers(folder)
        if not (folder / RECORD).exists():
            return cls(folder, identity)
        found = cls.reopen(folder)
        check_identity(folder, {**(earlier or {}), **found.identity}, identity, "search")
        return cls(folder, identity, found.trials, found.result)

    @classmethod
    def reopen(cls, folder: Path) -> "Journal":
        """Open the journal of any search in a folder; InputError if it is missing or damaged."""
        path = folder / RECORD
        try:
            state = read_record(path, "a search")
        except InputError as error:
            raise InputError(f"{error} {ADVICE}") from error
        try:
            trials = [Trial.from_record(trial) for trial in state["trials"]]
            return cls(
                folder, dict(state["identity"]), {one.name: one for one in trials}, state["result"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: expected the record of a search, found other entries. {ADVICE}"
            ) from error

    def write(self) -> None:
        """Write the whole journal atomically."""
        if self.folder is None:
            return
        record = {
            "identity": dict(self.identity),
            "trials": [trial.to_record() for trial in self.trials.values()],
            "result": self.result,
        }
        write_sealed(record, self.folder / RECORD)


def describe_failures(trials: Sequence[Trial]) -> str:
    """Say how many trials failed, and the most frequent reason; "" if none failed."""
    notes = Counter(trial.note for trial in trials if trial.nanoseconds is None)
    if not notes:
        return ""
    ((note, _),) = notes.most_common(1)
    return f"{notes.total()} of {len(trials)} failed, most often because of this: {note}"
