"""Mutated files of a kind, read one after the other by nobody."""

import os
import random
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from solution.system.errors import InputError
from tests.attacks.kinds import AGAIN, BY_NAME, Kind
from tests.attacks.mutations import REPLACEMENTS, mutate
from tests.made.hostile import NOBODY

NUMBER = "number"  # the file that says of which kind, and which mutation, is read
SAME, MADE_AGAIN, REFUSED, OTHER = "same", "again", "refused", "other"
SILENT, TRACEBACK = "silent", "traceback"
FAILURES = (SILENT, TRACEBACK)


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


@cache
def prepare(name: str, folder: Path) -> Trial:
    return Trial(BY_NAME[name], folder)


def run_mutations(
    name: str, folder: Path, numbers: range
) -> tuple[Counter[str], list[tuple[str, ...]]]:
    """How many of a kind's mutations had which outcome, and what is to be said of failures.

    Before each one its number is written, which names the one that the process dies of.
    """
    (folder / NUMBER).write_text(f"{name}, while its file is made")
    trial, counts = prepare(name, folder), Counter[str]()
    failures: list[tuple[str, ...]] = []
    _give_to_nobody(folder)
    user = os.geteuid()
    if user == 0:  # who may read everything
        os.seteuid(NOBODY)
    try:
        for number in numbers:
            (folder / NUMBER).write_text(f"{name}, mutation {number}")
            done, outcome, said = trial.run(number)
            counts[outcome] += 1
            if outcome in FAILURES:
                failures.append((name, str(number), done, outcome, said[-2000:]))
    finally:
        os.seteuid(user)
    return counts, failures


def _give_to_nobody(folder: Path) -> None:
    """What was made is damaged and read by nobody, who writes in it what readers write."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, -1)
