"""Programs to collect, and whether there is a compiler."""

from pathlib import Path

import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from solution.collecting.child import Open
from solution.collecting.children import Child, Limits, choose_core
from solution.collecting.collect import Workers

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


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return _write(tmp_path / "dense.py", DENSE)


@pytest.fixture
def ragged(tmp_path: Path) -> Path:
    return _write(tmp_path / "ragged.py", RAGGED)


@pytest.fixture(scope="session")
def workers() -> Workers:  # type: ignore[misc]
    """Two children with a compiler each, for all tests of a process."""
    limits = Limits(seconds=240)
    with Child(limits, choose_core()) as compiling, Child(limits, choose_core()) as timing:
        timing.ask(Open(b"", []))
        yield Workers(compiling, timing)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
