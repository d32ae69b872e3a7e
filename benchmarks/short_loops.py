"""Measure XLA's CPU kernels by the number of contiguous elements.

    python -m benchmarks.short_loops

Tensors have about equally many elements and a short or a long contiguous dimension. Timed are a
reduction, a softmax (reductions and element-wise operations), an attention as in graph nets, with
row-major and with another requested layout, and a pooling of small windows; for comparison, an
addition and a transposing copy. Nanoseconds per element, the minimum of many runs, less the time to
call a nearly empty program. One core; jax from the extra `collect`.
"""

import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from solution.system.terminal import output

MINOR = (2, 4, 8, 16, 32, 64)
RUNS = 60


def list_operations() -> dict[str, Callable[[Any], Any]]:
    """Return the timed operations on a tensor of three dimensions."""
    import jax
    from jax import lax
    from jax import numpy as jnp
    from jax.experimental.layout import Layout, with_layout_constraint

    def attend(x: Any, order: tuple[int, ...]) -> Any:
        scores = jax.nn.leaky_relu(x.sum(1)[:, None] + x.sum(0)[None])
        return with_layout_constraint(jax.nn.softmax(scores + x, 1), Layout(order)).sum(0)

    def pool(x: Any, axis: int) -> Any:
        window = tuple(2 if k == axis else 1 for k in range(3))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "SAME")

    return {
        "add": lambda x: x + 0.5,
        "copy turned around": lambda x: jnp.transpose(x, (2, 1, 0)) + 0.5,
        "sum of the middle": lambda x: x.sum(1),
        "sum of the contiguous": lambda x: x.sum(2),
        "softmax of the middle": lambda x: jax.nn.softmax(x, 1),
        "softmax of the contiguous": lambda x: jax.nn.softmax(x, 2),
        "attention": lambda x: attend(x, (0, 1, 2)),
        "attention, asked for in another layout": lambda x: attend(x, (1, 0, 2)),
        "pooling of the middle": lambda x: pool(x, 1),
        "pooling of the contiguous": lambda x: pool(x, 2),
    }


def time_program(function: Callable[[Any], Any], argument: Any) -> float:
    """Return the minimum seconds of a call."""
    import jax

    compiled = jax.jit(function).lower(argument).compile()
    seconds = np.inf
    for _ in range(RUNS):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(argument))  # type: ignore[no-untyped-call]
        seconds = min(seconds, time.perf_counter() - begin)
    return float(seconds)


def main(
    elements: Annotated[int, typer.Option(help="Of each tensor, about.")] = 1 << 18,
) -> None:
    """Print the table."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    from jax import numpy as jnp

    generator = np.random.default_rng(0)
    nothing = time_program(lambda x: x + 1.0, jnp.zeros((8,)))
    rows = []
    for name, function in list_operations().items():
        row = [name]
        for minor in MINOR:
            side = round((elements / minor) ** 0.5)
            tensor = jnp.asarray(generator.random((side, side, minor)), jnp.float32)
            seconds = time_program(function, tensor) - nothing
            row.append(f"{seconds / tensor.size * 1e9:.2f}")
        rows.append(row)
    with pl.Config(tbl_cols=-1, tbl_rows=-1, fmt_str_lengths=40, tbl_width_chars=200):
        names = ["ns an element", *(f"{minor} contiguous" for minor in MINOR)]
        output.print(pl.DataFrame(rows, schema=names, orient="row"))


if __name__ == "__main__":
    typer.run(main)
