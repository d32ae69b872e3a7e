"""A multilayer perceptron: three dots with a bias each, two rectifiers, and a tanh."""

import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(0)
SIZES = (96, 192, 192, 48)


def program(x, layers):
    """Return the output of the last layer (batch, 48).

    Args:
        x: (batch, 96) inputs.
        layers: a pair (weights, bias) for each layer.
    """
    for weights, bias in layers[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = layers[-1]
    return jnp.tanh(x @ weights + bias)


def draw(*size):
    """Return small random arguments."""
    return (0.1 * random.standard_normal(size)).astype(np.float32)


arguments = (
    draw(64, SIZES[0]),
    [(draw(*pair), draw(pair[1])) for pair in zip(SIZES, SIZES[1:], strict=False)],
)
