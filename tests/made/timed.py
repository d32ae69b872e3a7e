"""Programs to compile and time, as users write them, and the children that do it, as fixtures."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from solution.collecting.child import Open
from solution.collecting.cpu import Workers
from solution.collecting.program_space import ProgramSpace
from solution.programs.child import Child, Limits, choose_core
from solution.programs.program import Program, read_programs

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
"""A product whose 70 columns do not fill whole vectors."""
import numpy as np

def program(x, weights):
    return x @ weights

random = np.random.default_rng(0)
arguments = tuple(random.standard_normal(s).astype(np.float32) for s in ((96, 128), (128, 70)))
'''
# It takes 48 GB, and no configuration makes that less.
SCALAR = """HloModule scalar
ENTRY main {
  p = s32[] parameter(0)
  q = s32[1,1]{1,0} reshape(p)
  r = s32[1,1,1]{2,1,0} reshape(q)
  s = s32[] reshape(r)
  ROOT t = s32[] add(s, p)
}
"""
HUGE = """HloModule huge
ENTRY main {
  left = f32[65536,65536]{1,0} parameter(0)
  right = f32[65536,65536]{1,0} parameter(1)
  ROOT end = f32[65536,65536]{1,0} dot(left, right),
    lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
HEAVY = '''
"""The product of RAGGED, with more than 400 MB of intermediate results."""
import numpy as np

def program(x, weights):
    import jax
    import jax.numpy as jnp
    large = jnp.tile(x[0], 800_000)
    large = jax.lax.fori_loop(0, 2, lambda _, kept: jnp.abs(kept), large)
    return x @ weights + 0 * large.max()

random = np.random.default_rng(0)
arguments = tuple(random.standard_normal(s).astype(np.float32) for s in ((96, 128), (128, 70)))
'''
FEW_MEGABYTES = 450  # a child takes less than 300, and more if it runs HEAVY


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two children with a compiler each, for all tests of a process."""
    pytest.importorskip("jax")  # the extra `collect`; make test installs it
    limits, core = Limits(seconds=240), choose_core()
    with Child(limits, core) as compiling, Child(limits, core) as timing:
        timing.ask(Open(b"", []))
        yield Workers(compiling, timing)


def read_text(text: str, path: Path, workers: Workers, platform: str = "cpu") -> Program:
    """Write a program's file, and read the program."""
    path.write_text(text, encoding="utf-8")
    return read_file(path, workers, platform)


def read_file(path: Path, workers: Workers, platform: str = "cpu") -> Program:
    (program,) = read_programs(path, workers.compiling, platform=platform)
    return program


def find_tile(space: ProgramSpace, tile: Sequence[int]) -> np.ndarray:
    """The configuration of a product that has this tile."""
    assert space.product is not None
    return np.array([1 + space.product.tiles.tolist().index(list(tile))], np.int32)


def _define(name: str, text: str) -> Callable[..., Program]:
    @pytest.fixture(scope="session", name=name)
    def read(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
        return read_text(text, tmp_path_factory.mktemp(name) / f"{name}.py", workers)

    return read


dense, ragged, heavy = _define("dense", DENSE), _define("ragged", RAGGED), _define("heavy", HEAVY)
