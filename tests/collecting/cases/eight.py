"""A product of eight-bit floats, given as arrays."""

import jax.numpy as jnp


def program(x, w):
    return (x.astype(jnp.float32) @ w.astype(jnp.float32)).astype(jnp.float8_e4m3fn)


arguments = (jnp.ones((64, 128), jnp.float8_e4m3fn), jnp.ones((128, 32), jnp.float8_e4m3fn))
