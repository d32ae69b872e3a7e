"""Arguments as jax.export and ahead-of-time lowering take them: shapes and types."""

import jax
import jax.numpy as jnp


def program(x, weights):
    return jnp.tanh(x @ weights)


arguments = (
    jax.ShapeDtypeStruct((64, 128), jnp.float32),
    jax.ShapeDtypeStruct((128, 32), jnp.float32),
)
