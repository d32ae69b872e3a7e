"""A transformer block: attention with four heads, then two dots, each with a residual."""

import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(0)
BATCH, LENGTH, WIDTH, HEADS = 2, 32, 64, 4


def normalise(x):
    """Normalise to zero mean and unit variance over the last dimension."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5)


def split(x):
    """Split x into heads: (batch, heads, length, width of a head)."""
    return x.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def program(x, query, key, value, out, up, down):
    """Return the block's output (batch, length, width)."""
    own = normalise(x)
    scores = split(own @ query) @ split(own @ key).transpose(0, 1, 3, 2)
    mixed = jax.nn.softmax(scores / (WIDTH // HEADS) ** 0.5) @ split(own @ value)
    x = x + mixed.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ out
    return x + jax.nn.gelu(normalise(x) @ up) @ down


def draw(*size):
    """Return small random arguments."""
    return (0.1 * random.standard_normal(size)).astype(np.float32)


arguments = (
    draw(BATCH, LENGTH, WIDTH),
    *(draw(WIDTH, WIDTH) for _ in range(4)),
    draw(WIDTH, 2 * WIDTH),
    draw(2 * WIDTH, WIDTH),
)
