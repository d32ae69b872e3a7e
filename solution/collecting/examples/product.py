"""One matrix product, for `fastslow collect tile`."""

import numpy as np

random = np.random.default_rng(0)


def program(x, weights):
    """Return the matrix product of x (96, 192) and weights (192, 128)."""
    return x @ weights


arguments = tuple(random.standard_normal(s).astype(np.float32) for s in ((96, 192), (192, 128)))
