"""Layers of the models for a TPU's training set; see benchmarks.tpu_models.

A layer is a function of (a model's parameters, activations). jax is imported when a layer is made.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

Settings = dict[str, Any]
Arrays = Sequence[Any]  # a model's parameters
Layer = Callable[[Arrays, Any], Any]  # (parameters, activations) -> activations


class Parameters:
    """The shapes of a model's parameters. Its layers refer to a parameter by its number.

    A training step keeps them in float32 and casts them where they are used; a forward pass has
    them in the type of the activations.
    """

    def __init__(self, settings: Settings) -> None:
        import jax

        self._shape = jax.ShapeDtypeStruct
        self.dtype = settings["dtype"]
        self._kept = "float32" if settings["optimizer"] else self.dtype
        self.shapes: list[Any] = []

    def add(self, *sizes: int) -> Callable[[Arrays], Any]:
        """Add a parameter; return a function that takes it from the model's parameters."""
        number, dtype = len(self.shapes), self.dtype
        self.shapes.append(self._shape(sizes, self._kept))
        return lambda arrays: arrays[number].astype(dtype)

    def activations(self, *sizes: int) -> Any:
        """Return the shape of an input in the type of the activations."""
        return self._shape(sizes, self.dtype)

    def numbers(self, *sizes: int) -> Any:
        """Return the shape of an input of whole numbers, such as tokens."""
        return self._shape(sizes, "int32")


def chain(layers: Sequence[Layer]) -> Layer:
    def forward(arrays: Arrays, x: Any) -> Any:
        for layer in layers:
            x = layer(arrays, x)
        return x

    return forward


def repeat(settings: Settings, make: Callable[[], Layer]) -> Layer:
    """Return `depth` blocks in a row; they share their parameters if the settings say so."""
    shared = make() if settings["is_shared"] else None
    return chain([shared or make() for _ in range(settings["depth"])])


def find_activation(settings: Settings) -> Callable[[Any], Any]:
    import jax

    return getattr(jax.nn, settings["activation"])


def dense(made: Parameters, wide: int, out: int) -> Layer:
    weight, bias = made.add(wide, out), made.add(out)
    return lambda arrays, x: x @ weight(arrays) + bias(arrays)


def make_norm(settings: Settings, made: Parameters, width: int) -> Layer:
    """Return a normalization over the batch, a group of channels, or all channels."""
    import jax.numpy as jnp

    scale, shift = made.add(width), made.add(width)
    kind = settings["norm"]

    def normalise(arrays: Arrays, x: Any) -> Any:
        y = x.astype(jnp.float32)
        if kind == "group":
            y = y.reshape(*x.shape[:-1], 8, width // 8)
        axes = {"batch": tuple(range(y.ndim - 1)), "group": (*range(1, y.ndim - 2), y.ndim - 1)}
        over = axes.get(kind, (y.ndim - 1,))
        if kind != "rms":
            y = y - y.mean(over, keepdims=True)
        y = y / jnp.sqrt((y * y).mean(over, keepdims=True) + 1e-5)
        return y.reshape(x.shape).astype(x.dtype) * scale(arrays) + shift(arrays)

    return normalise


def conv(
    made: Parameters, size: int, wide: int, out: int, stride: int = 1, groups: int = 1
) -> Layer:
    import jax

    kernel = made.add(size, size, wide // groups, out)

    def convolve(arrays: Arrays, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            kernel(arrays),
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    return convolve


def feed_forward(settings: Settings, made: Parameters, width: int) -> Layer:
    """Return two products with an activation between them, gated if the settings say so."""
    activate = find_activation(settings)
    up, down = dense(made, width, 4 * width), dense(made, 4 * width, width)
    gate = dense(made, width, 4 * width) if settings["is_gated"] else None

    def forward(arrays: Arrays, x: Any) -> Any:
        hidden = activate(up(arrays, x))
        return down(arrays, hidden * gate(arrays, x) if gate else hidden)

    return forward


def residual(settings: Settings, made: Parameters, width: int, inner: Layer) -> Layer:
    """Return x + inner(x), normalized before or after."""
    norm = make_norm(settings, made, width)
    if settings["is_normed_first"]:
        return lambda arrays, x: x + inner(arrays, norm(arrays, x))
    return lambda arrays, x: norm(arrays, x + inner(arrays, x))


def mixing_block(
    settings: Settings,
    made: Parameters,
    mix: Layer,
    make_inner: Callable[[Settings, Parameters, int], Layer] = feed_forward,
) -> Layer:
    """Return a residual layer that mixes positions, and one that works on each position alone."""
    width = settings["width"]
    mixed = residual(settings, made, width, mix)
    return chain([mixed, residual(settings, made, width, make_inner(settings, made, width))])


def attention(
    settings: Settings, made: Parameters, *, is_causal: bool = False
) -> Callable[[Arrays, Any, Any], Any]:
    """Return attention of queries (batch, length, width) to a memory of the same form.

    A gated model has one key and value for each two heads; a rotary one turns queries and keys by
    their positions.
    """
    import jax
    import jax.numpy as jnp

    width, heads = settings["width"], settings["heads"]
    size, kept = width // heads, heads // 2 if settings["is_gated"] else heads
    query, out = dense(made, width, width), dense(made, width, width)
    key, value = dense(made, width, kept * size), dense(made, width, kept * size)

    def split(x: Any) -> Any:
        x = x.reshape(*x.shape[:2], -1, size)
        return jnp.repeat(x, heads // x.shape[2], 2) if x.shape[2] < heads else x

    def attend(arrays: Arrays, x: Any, memory: Any) -> Any:
        q, k, v = split(query(arrays, x)), split(key(arrays, memory)), split(value(arrays, memory))
        if settings["is_rotary"]:
            q, k = _rotate(q), _rotate(k)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(size)
        if is_causal:
            scores = jnp.where(jnp.tri(x.shape[1], memory.shape[1], dtype=bool), scores, -1e9)
        shares = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v)
        return out(arrays, mixed.reshape(x.shape))

    return attend


def _rotate(x: Any) -> Any:
    """Turn pairs of features by angles that grow with the position, as rotary embeddings do."""
    import jax.numpy as jnp

    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angles)[None, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)


def self_attention(settings: Settings, made: Parameters, *, is_causal: bool = False) -> Layer:
    attend = attention(settings, made, is_causal=is_causal)
    return lambda arrays, x: attend(arrays, x, x)
