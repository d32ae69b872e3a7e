"""Write into the folder `dumped` what XLA dumps by default: text."""

import os

os.environ["XLA_FLAGS"] = "--xla_dump_to=dumped"
import jax
import jax.numpy as jnp

product = jax.jit(lambda x, w: jnp.tanh(x @ w) @ w.T)
product(jnp.ones((64, 128)), jnp.ones((128, 32))).block_until_ready()
