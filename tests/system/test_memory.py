"""Memory with holes goes back to the system."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


LARGE = """
import solution
import torch

tensor = torch.ones(32 << 20)  # 128 MB
for line in open("/proc/self/smaps_rollup"):
    if line.startswith("AnonHugePages"):
        print(int(line.split()[1]) >> 10)
"""
CHOICES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not CHOICES.is_file() or "[never]" in CHOICES.read_text(), reason="no large pages here"
)
@pytest.mark.parametrize(("own", "expected"), [({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)])
def test_large_tensors_lie_in_large_pages_unless_the_user_says_otherwise(
    own: dict[str, str], expected: bool
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"} | own
    done = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, check=True, env=environment
    )
    if expected or "[always]" not in CHOICES.read_text():
        assert (int(done.stdout) > 100) == expected
