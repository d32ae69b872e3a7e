"""A small convolutional net: two convolutions, one of them strided, and a matrix product."""

import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(0)


def convolve(x, kernel, stride):
    """Convolve x (batch, height, width, channels) with kernel (height, width, input, output)."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=numbers
    )


def program(images, first, second, weights):
    """Return the scores (batch, 10)."""
    hidden = jax.nn.relu(convolve(images, first, 1))
    hidden = jax.nn.relu(convolve(hidden, second, 2))
    return hidden.reshape(hidden.shape[0], -1) @ weights + jnp.float32(0.1)


def draw(*size):
    """Return small random arguments."""
    return (0.1 * random.standard_normal(size)).astype(np.float32)


arguments = (draw(4, 16, 16, 8), draw(3, 3, 8, 16), draw(3, 3, 16, 16), draw(8 * 8 * 16, 10))
