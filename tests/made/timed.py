"""Programs to compile and time, as their users write them, and the children that do it."""

from collections.abc import Iterator
from contextlib import contextmanager

from solution.collecting.child import Open
from solution.collecting.cpu import Workers
from solution.programs.child import Child, Limits, choose_core

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
HEAVY = '''
"""The product of RAGGED, which takes more than 400 MB on the way."""
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
FEW_MEGABYTES = 450  # a child takes less than 300, and more where it runs HEAVY


@contextmanager
def open_workers() -> Iterator[Workers]:
    """Two children with a compiler each."""
    limits, core = Limits(seconds=240), choose_core()
    with Child(limits, core) as compiling, Child(limits, core) as timing:
        timing.ask(Open(b"", []))
        yield Workers(compiling, timing)
