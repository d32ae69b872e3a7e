"""Programs that are compiled, and the children that do it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from solution.collecting.children import Child, Limits, choose_core
from solution.collecting.collect import Workers
from solution.collecting.program import Program, read_programs

DENSE = '''
"""Two products and a reshape."""
import numpy as np

def program(x, weights, more):
    import jax.numpy as jnp
    return jnp.tanh(x @ weights).reshape(8, 4, 24).transpose(1, 0, 2) @ more

random = np.random.default_rng(0)
arguments = tuple(
    random.standard_normal(size).astype(np.float32) for size in ((32, 48), (48, 24), (24, 16))
)
'''
RAGGED = '''
"""A product whose 70 columns are no whole number of vectors."""
import numpy as np

def program(x, weights):
    return x @ weights

random = np.random.default_rng(0)
arguments = tuple(random.standard_normal(s).astype(np.float32) for s in ((96, 128), (128, 70)))
'''


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two children with a compiler each, for all tests of a process."""
    pytest.importorskip("jax")  # the extra `collect`; make test installs it
    limits, core = Limits(seconds=240), choose_core()
    with Child(limits, core) as compiling, Child(limits, core) as timing:
        yield Workers(compiling, timing)


@pytest.fixture(scope="session")
def dense(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _read(DENSE, "dense", workers, tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="session")
def ragged(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _read(RAGGED, "ragged", workers, tmp_path_factory.mktemp("ragged"))


def _read(text: str, name: str, workers: Workers, folder: Path) -> Program:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    (program,) = read_programs(path, workers.compiling)
    return program
