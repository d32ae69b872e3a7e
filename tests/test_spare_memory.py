"""Memory with holes goes back to the system."""

import sys

import numpy as np
import psutil
import pytest

from solution import spare_memory
from solution.spare_memory import SpareMemory

MEGABYTE = 1 << 20


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries give back by themselves")
def test_holes_are_given_back_once_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "SPARE", 100 * MEGABYTE)
    memory, before = SpareMemory(), resident()
    arrays = [np.ones(12_500) for _ in range(2000)]  # 100 kB each: too small for pages of their own
    kept = arrays[::50]
    del arrays
    holes = resident()
    assert holes - before > 150 * MEGABYTE
    memory.give_back()
    assert resident() - before < 50 * MEGABYTE
    assert len(kept) == 40
