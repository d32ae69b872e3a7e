"""What numba has compiled of other sources is not run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solution.system.compiled import PACKAGE, SOURCES, find_cache


def test_another_source_has_another_cache(tmp_path: Path) -> None:
    """numba itself looks at the file of the function that is called alone."""
    copy = tmp_path / "solution"
    for folder in SOURCES:
        shutil.copytree(PACKAGE / folder, copy / folder)
    first = find_cache(copy)
    assert first.name == find_cache().name
    heaps = copy / "placement" / "simulation" / "loop.py"
    text = heaps.read_text()
    heaps.write_text(text.replace("costs[READY, one] < ", "costs[READY, one] > "))
    assert find_cache(copy) != first
    heaps.write_text(text)
    assert find_cache(copy) == first


def test_all_that_is_compiled_is_looked_at() -> None:
    compiled = [path for path in PACKAGE.rglob("*.py") if "@njit" in path.read_text("utf-8")]
    assert compiled
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in compiled}
    assert folders <= set(SOURCES)


@pytest.mark.parametrize("imported", ["solution, numba", "numba, solution"])
def test_what_is_compiled_is_kept_there(imported: str) -> None:
    code = f"import {imported}; print(numba.config.CACHE_DIR)"
    own = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    for given, expected in ((own, str(find_cache())), (own | {"NUMBA_CACHE_DIR": "mine"}, "mine")):
        found = subprocess.run(
            [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == expected
