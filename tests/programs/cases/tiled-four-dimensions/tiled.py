"""A tensor of four dimensions is tiled: jax writes it with one of eight."""

import jax.numpy as jnp
import numpy as np


def program(x, weights):
    return jnp.tanh(jnp.tile(x, (1, 2, 2, 1)) @ weights)


arguments = (np.ones((2, 4, 8, 16), np.float32), np.ones((16, 32), np.float32))
