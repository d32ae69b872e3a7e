"""Of a damaged file comes what was in it before, or a message that names it, and nothing else."""

import os

import pytest

from tests.attacks.attack import attack, keep
from tests.attacks.kinds import KINDS
from tests.attacks.mutations import REPLACEMENTS
from tests.attacks.trial import OTHER, SAME

FEW = len(REPLACEMENTS) + 24
MANY = int(os.environ.get("FASTSLOW_ATTACKS", "4000"))
SHARES = 8
NAMES = [kind.name for kind in KINDS]


def test_a_few_mutations_of_every_kind_of_file() -> None:
    found = attack(NAMES, FEW)
    assert not found.failures, found.describe_failures()
    assert list(found.counts) == NAMES
    for kind in KINDS:
        counts = found.counts[kind.name]
        assert sum(counts.values()) == FEW
        assert counts[SAME] < FEW, f"{kind.name}: nothing is noticed, is it read at all?"
        assert not (kind.sealed and counts[OTHER])


@pytest.mark.slow
@pytest.mark.parametrize("names", [NAMES[first::SHARES] for first in range(SHARES)])
def test_many_mutations(names: list[str]) -> None:
    """A process takes longer to begin than a thousand mutations, so each has several kinds."""
    found = attack(names, MANY)
    keep(found)
    assert not found.failures, found.describe_failures()
    assert list(found.counts) == names
    for counts in found.counts.values():
        assert sum(counts.values()) == MANY
        assert counts[SAME] < MANY, "nothing is noticed, is it read at all?"
