"""Of a damaged file comes what was in it before, or a message that names it, and nothing else."""

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.attacks.kinds import BY_NAME, KINDS
from tests.attacks.mutations import REPLACEMENTS
from tests.attacks.trial import NUMBER, OTHER, SAME, run_mutations
from tests.made.guarded import open_guard

FEW = len(REPLACEMENTS) + 24
MANY = int(os.environ.get("FASTSLOW_ATTACKS", "4000"))
CHUNK = 250  # mutations in a call, which may not take longer than the guard allows
SHARES = 8
NAMES = [kind.name for kind in KINDS]


def attack(names: list[str], count: int) -> None:
    """Check `count` mutations of each of the kinds."""
    with tempfile.TemporaryDirectory(prefix="attack-") as place, open_guard() as guard:
        folder = Path(place)  # not one of pytest's, for the reader is nobody
        for name in names:
            counts, failures = Counter[str](), []
            for first in range(0, count, CHUNK):
                numbers = range(first, min(first + CHUNK, count))
                try:
                    found, failed = guard.call(run_mutations, name, folder, numbers)
                except AssertionError as error:
                    error.add_note((folder / NUMBER).read_text())
                    raise
                counts += found
                failures += failed
            assert not failures, "\n".join(map(str, failures[:20]))
            assert counts.total() == count
            assert counts[SAME] < count, f"{name}: nothing is noticed, is it read at all?"
            assert not (BY_NAME[name].sealed and counts[OTHER])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are small."""
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        monkeypatch.setenv(name, "1")


def test_a_few_mutations_of_every_kind_of_file() -> None:
    attack(NAMES, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("names", [NAMES[first::SHARES] for first in range(SHARES)])
def test_many_mutations(names: list[str]) -> None:
    """A process takes longer to begin than a thousand mutations, so each has several kinds."""
    attack(names, MANY)
