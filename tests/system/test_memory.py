"""Memory with holes goes back to the system."""

import json
import subprocess
import sys

import pytest

# In a process of its own, whose heap has no holes yet.
SCRIPT = """
import json
import numpy as np, psutil
from solution.system import memory as spare

spare.SPARE = 100 << 20
resident = lambda: psutil.Process().memory_info().rss >> 20
memory, found = spare.SpareMemory(), [resident()]
arrays = [np.ones(12_500) for _ in range(2000)]  # 100 kB each: too small for pages of their own
kept = arrays[::50]
del arrays
found.append(resident())
memory.give_back()
found.append(resident())
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries give back by themselves")
def test_holes_are_given_back_once_there_are_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    before, with_holes, after = json.loads(done.stdout)
    assert with_holes - before > 150
    assert after - before < 50
