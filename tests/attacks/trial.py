"""Mutated files read one after the other, in a process with little memory that may die of it.

Before each one its number is written where the parent sees it even after a crash. So a signal, or
no answer, is known to be of this very file, and the next process goes on behind it.
"""

import json
import mmap
import os
import random
import resource
import struct
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from solution.system.errors import InputError
from tests.attacks.kinds import AGAIN, BY_NAME, KINDS, Kind
from tests.attacks.mutations import REPLACEMENTS, mutate
from tests.made.hostile import NOBODY

MEMORY = 1 << 30  # bytes, beside what the process has when it begins
PROGRESS = struct.Struct("<qq")  # the place of the kind, the number of the mutation
SAME, MADE_AGAIN, REFUSED, OTHER = "same", "again", "refused", "other"
SILENT, TRACEBACK, SIGNAL, HANG = "silent", "traceback", "signal", "hang"
FAILURES = (SILENT, TRACEBACK, SIGNAL, HANG)
OUTCOMES = (SAME, MADE_AGAIN, REFUSED, OTHER, *FAILURES)


class Trial:
    """A sound file of a kind, which is damaged, read and mended."""

    def __init__(self, kind: Kind, folder: Path, others: Sequence[bytes] = ()) -> None:
        self.kind, self.path = kind, kind.make(folder)
        self._sound, self._mode = self.path.read_bytes(), self.path.stat().st_mode
        self._others = [self._sound, *others]
        self.expected = kind.read(self.path)
        assert kind.read(self.path) == self.expected, f"{kind.name}: is not read alike twice"

    def run(self, number: int) -> tuple[str, str, str]:
        """What was done, the outcome, and what is to be said of it.

        The first numbers put something else in the place of the file, the others change its bytes.
        """
        if number < len(REPLACEMENTS):
            replace = REPLACEMENTS[number]
            replace(self.path)
            done = replace.__name__
        else:
            seed = random.Random(f"{self.kind.name}/{number}").randrange(1 << 62)
            done, content = mutate(self._sound, seed, self._others)
            self.path.write_bytes(content)
        try:
            return done, *self._read()
        finally:
            self._mend()

    def _read(self) -> tuple[str, str]:
        try:
            found = self.kind.read(self.path)
        except (InputError, OSError) as error:  # what the command line ends with exit code 2 for
            if names(str(error), self.path):
                return REFUSED, ""
            return TRACEBACK, f"does not name the file: {error}"
        except BaseException:  # a panic of another library is no Exception
            return TRACEBACK, traceback.format_exc()
        if found == self.expected:
            return SAME, ""
        if found == AGAIN:
            return MADE_AGAIN, ""
        return (SILENT if self.kind.sealed else OTHER), repr(found[:300])

    def _mend(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            self.path.rmdir()
        else:
            self.path.unlink(missing_ok=True)
        self.path.write_bytes(self._sound)
        self.path.chmod(self._mode & 0o777)


def names(message: str, path: Path) -> bool:
    """Whether it says which file is meant: by its path, or by a folder and where it lies there."""
    parts = [f"{folder}: {path.relative_to(folder)}" for folder in path.parents]
    return any(text in message for text in (str(path), f"{path.parent}:", *parts))


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(folder: Path, names: Sequence[str], first_kind: int, first: int, count: int) -> None:
    """Do `count` mutations of each of the kinds, from number `first` of kind number `first_kind`.

    Appends a line of JSON to folder/outcomes.jsonl for each mutation that must not be, and for each
    kind that is done how many had which outcome.
    """
    made = folder / f"made-{first_kind}-{first}"  # what a process leaves that died is damaged
    made.mkdir()
    kinds = [BY_NAME[name] for name in names[first_kind:]]
    trials = [Trial(kind, made) for kind in kinds]
    _give_to_nobody(made)
    limit_memory()
    if os.geteuid() == 0:  # who may read everything; for good, for each change is told every thread
        os.seteuid(NOBODY)
    warnings.simplefilter("ignore")
    with (folder / "progress").open("r+b") as file, mmap.mmap(file.fileno(), 0) as progress:
        for place, trial in enumerate(trials, first_kind):
            counts = dict.fromkeys(OUTCOMES, 0)
            for number in range(first if place == first_kind else 0, count):
                progress[: PROGRESS.size] = PROGRESS.pack(place, number)
                done, outcome, said = trial.run(number)
                counts[outcome] += 1
                if outcome in FAILURES:
                    note(folder, trial.kind.name, number, done, outcome, said)
                if number % 500 == 499:
                    note_counts(folder, trial.kind.name, counts)
            note_counts(folder, trial.kind.name, counts)


def _give_to_nobody(folder: Path) -> None:
    """What was made is damaged and read by nobody, who writes in it what readers write."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, -1)


def note(folder: Path, name: str, number: int, done: str, outcome: str, said: str) -> None:
    """Write down a mutation that must not be."""
    line = {"kind": name, "number": number, "done": done, "outcome": outcome, "said": said[-2000:]}
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def note_counts(folder: Path, name: str, counts: dict[str, int]) -> None:
    """Write down how many had which outcome since the last time, and count anew."""
    with (folder / "outcomes.jsonl").open("a") as file:
        file.write(json.dumps({"kind": name, "counts": counts}) + "\n")
    counts.update(dict.fromkeys(counts, 0))


if __name__ == "__main__":
    place, number, count = map(int, sys.argv[2:5])
    main(Path(sys.argv[1]), sys.argv[5:] or [k.name for k in KINDS], place, number, count)
