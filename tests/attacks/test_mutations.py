"""Of a damaged file comes what was in it before, or a message that names it, and nothing else."""

import os

import pytest

from tests.attacks.attack import attack, keep
from tests.attacks.kinds import KINDS
from tests.attacks.mutations import REPLACEMENTS
from tests.attacks.trial import OTHER, REFUSED, SAME

FEW = len(REPLACEMENTS) + 24
MANY = int(os.environ.get("FASTSLOW_ATTACKS", "10000"))
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
@pytest.mark.parametrize("name", NAMES)
def test_many_mutations(name: str) -> None:
    found = attack([name], MANY)
    keep(found)
    assert not found.failures, found.describe_failures()
    assert sum(found.counts[name].values()) == MANY
    assert found.counts[name][REFUSED] + found.counts[name][SAME] > 0
