"""Heads of attention as a tensor of seven dimensions."""

import jax.numpy as jnp
import numpy as np


def program(x, w):
    heads = x.reshape(2, 3, 2, 2, 2, 4, 8).transpose(0, 2, 1, 4, 3, 5, 6)
    return jnp.tanh(heads.reshape(192, 8) @ w)


arguments = (np.ones((192, 8), np.float32), np.ones((8, 16), np.float32))
