"""Programs to compile and time, as their users write them, and the children that do it."""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def open_workers() -> Iterator[Workers]:
    """Two children with a compiler each."""
    limits, core = Limits(seconds=240), choose_core()
    with Child(limits, core) as compiling, Child(limits, core) as timing:
        timing.ask(Open(b"", []))
        yield Workers(compiling, timing)
