"""Ten small tensors contracted in a chain, as simulations of quantum circuits do."""

import jax.numpy as jnp
import numpy as np


def program(tensors):
    product = tensors[0]
    for tensor in tensors[1:]:
        product = jnp.tensordot(product, tensor, ((product.ndim - 1,), (0,)))
    return jnp.tensordot(product, product, (tuple(range(product.ndim)),) * 2)


arguments = ([np.ones((2, 2, 2), np.float32)] * 10,)
