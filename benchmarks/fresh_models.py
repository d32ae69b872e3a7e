"""Generate small models of families that no training data has, for the fresh set.

A family here must stand in no training data: once a fresh set was added to them, write others.
jax is imported when a program is built, which happens in a child process only.

Sources: Huang and others, "Densely Connected Convolutional Networks" (2016); Qi and others,
"PointNet" (2016); Radford and others, "CLIP" (2021); Li and others, "Fourier Neural Operator"
(2020); Katharopoulos and others, "Transformers are RNNs" (2020); Jaegle and others, "Perceiver"
(2021); Gehring and others, "Convolutional Sequence to Sequence Learning" (2017); Dinh and others,
"Real NVP" (2016); Lee-Thorp and others, "FNet" (2021); Hua and others, "Transformer Quality in
Linear Time" (2022).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import tpu_models
from benchmarks.tpu_layers import (
    Arrays,
    Layer,
    Parameters,
    Settings,
    attention,
    chain,
    conv,
    dense,
    feed_forward,
    find_activation,
    make_norm,
    mixing_block,
    repeat,
    residual,
    self_attention,
)

FAMILIES = {
    "xla": ("densenet", "pointnet", "contrastive", "spectral", "flow"),
    "nlp": ("linear", "perceiver", "convolutional", "fnet", "gau"),
}
TOKENS = 512  # rows of the embedding table
CHANNELS = 8  # of an image


def draw_settings(family: str, generator: np.random.Generator) -> Settings:
    """Draw the settings of a random model of a family, small enough for a CPU."""
    pick = generator.choice
    is_image = family in ("densenet", "contrastive")
    return {
        **tpu_models.draw_settings(family, generator),
        "depth": int(generator.integers(1, 4)),
        "width": int(pick((16, 24, 32) if is_image else (32, 48, 64, 96))),
        "batch": int(pick((2, 4, 8))),
        "length": int(pick((12, 16, 24, 32))),
        "norm": str(pick(("layer", "rms"))),
        "dtype": "float32",
        "heads": 4,
    }


def write_file(settings: Settings) -> str:
    """Return the Python source of a file with the model, which can be collected."""
    return (
        f"from benchmarks.fresh_models import build\n\nprogram, arguments = build(**{settings})\n"
    )


def build(**settings: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the model with these settings, and its arguments; see tpu_models.build."""
    return tpu_models.assemble(MODELS[settings["family"]], settings)


def _densenet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Blocks whose convolutions each read what all earlier ones of the block made."""
    import jax.numpy as jnp

    width, activate = settings["width"], find_activation(settings)
    wide, layers = CHANNELS, []

    def block(wide: int) -> Layer:
        convs = [conv(made, 3, wide + n * width, width) for n in range(2 + settings["is_shared"])]
        out = wide + len(convs) * width
        norm, narrow = make_norm(settings, made, out), conv(made, 1, out, 2 * width, 2)

        def forward(arrays: Arrays, x: Any) -> Any:
            for convolve in convs:
                x = jnp.concatenate([x, activate(convolve(arrays, x))], -1)
            return narrow(arrays, activate(norm(arrays, x)))

        return forward

    for _ in range(settings["depth"]):
        layers.append(block(wide))
        wide = 2 * width
    head = dense(made, wide, 10)
    return chain([*layers, lambda arrays, x: head(arrays, x.mean((1, 2)))]), _images(settings, made)


def _images(settings: Settings, made: Parameters) -> Any:
    return made.activations(settings["batch"], settings["length"], settings["length"], CHANNELS)


def _pointnet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Each point is transformed alone; the maximum over all points returns to each of them."""
    import jax.numpy as jnp

    width, activate = settings["width"], find_activation(settings)
    first = dense(made, 3, width)
    blocks = [
        (dense(made, width, 2 * width), dense(made, 3 * width, width))
        for _ in range(settings["depth"])
    ]
    head = dense(made, width, 8)

    def forward(arrays: Arrays, points: Any) -> Any:
        x = activate(first(arrays, points))
        for up, join in blocks:
            whole = activate(up(arrays, x)).max(1, keepdims=True)
            whole = jnp.broadcast_to(whole, (*x.shape[:2], whole.shape[-1]))
            x = activate(join(arrays, jnp.concatenate([x, whole], -1)))
        return head(arrays, x)

    return forward, made.activations(settings["batch"], 16 * settings["length"], 3)


def _contrastive(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Two towers, one for images and one for vectors, and the similarity of all pairs."""
    import jax.numpy as jnp

    width, batch, activate = settings["width"], 4 * settings["batch"], find_activation(settings)
    convs = [
        conv(made, 3, CHANNELS if n == 0 else width, width, 2) for n in range(settings["depth"])
    ]
    inner = [feed_forward(settings, made, 2 * width) for _ in range(settings["depth"])]
    left, right = dense(made, width, 2 * width), dense(made, 2 * width, 2 * width)

    def unit(x: Any) -> Any:
        return x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)

    def forward(arrays: Arrays, inputs: Any) -> Any:
        x, y = inputs
        for convolve in convs:
            x = activate(convolve(arrays, x))
        for layer in inner:
            y = y + layer(arrays, y)
        return unit(left(arrays, x.mean((1, 2)))) @ unit(right(arrays, y)).T

    images = _images({**settings, "batch": batch}, made)
    return forward, (images, made.activations(batch, 2 * width))


def _spectral(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Mix positions in the frequency domain: products with cosines, and weights per frequency."""
    import jax.numpy as jnp

    width, length = settings["width"], 2 * settings["length"]
    modes, activate = length // 2, find_activation(settings)
    waves = _list_waves(length, modes)
    first, head = dense(made, 3, width), dense(made, width, 1)

    def block() -> Layer:
        weight, beside = made.add(modes, width, width), dense(made, width, width)

        def forward(arrays: Arrays, x: Any) -> Any:
            found = jnp.einsum("blw,lm->bmw", x, waves)
            mixed = jnp.einsum("bmw,mwv->bmv", found, weight(arrays))
            return activate(jnp.einsum("bmv,lm->blv", mixed, waves) / length + beside(arrays, x))

        return forward

    body = chain([first, repeat(settings, block), head])
    return body, made.activations(settings["batch"], length, 3)


def _list_waves(length: int, modes: int) -> np.ndarray:
    """Return the cosines (length, modes) of the discrete cosine transform."""
    angles = np.pi * np.outer(np.arange(length) + 0.5, np.arange(modes)) / length
    return np.cos(angles).astype(np.float32)


def _flow(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Each half of the features in turn is scaled and shifted by a net of the other half."""
    import jax.numpy as jnp

    width, activate = settings["width"], find_activation(settings)
    half = width // 2
    nets = [
        (dense(made, half, 2 * width), dense(made, 2 * width, width))
        for _ in range(2 * settings["depth"])
    ]

    def forward(arrays: Arrays, x: Any) -> Any:
        for up, down in nets:
            kept, moved = jnp.split(x, 2, -1)
            scale, shift = jnp.split(down(arrays, activate(up(arrays, kept))), 2, -1)
            x = jnp.concatenate([moved * jnp.exp(jnp.tanh(scale)) + shift, kept], -1)
        return x

    return forward, made.activations(32 * settings["batch"], width)


def _embed(settings: Settings, made: Parameters, body: Layer) -> tuple[Layer, Any]:
    """Return `body` between an embedding table and the scores of all tokens."""
    table = made.add(TOKENS, settings["width"])
    size = settings["batch"], 2 * settings["length"]
    tokens = np.random.default_rng(0).integers(0, TOKENS, size).astype(np.int32)
    return lambda arrays, x: body(arrays, table(arrays)[x]) @ table(arrays).T, tokens


def _linear(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Blocks of linear attention: keys and values are summed first, over all positions."""
    import jax
    import jax.numpy as jnp

    width, heads = settings["width"], settings["heads"]

    def attend() -> Layer:
        query, key, value = (dense(made, width, width) for _ in range(3))
        out = dense(made, width, width)

        def forward(arrays: Arrays, x: Any) -> Any:
            def split(part: Any) -> Any:
                return part.reshape(*x.shape[:2], heads, width // heads)

            q, k = (jax.nn.elu(split(part(arrays, x))) + 1 for part in (query, key))
            sums = jnp.einsum("blhk,blhv->bhkv", k, split(value(arrays, x)))
            scale = 1 / jnp.einsum("blhk,bhk->blh", q, k.sum(1))
            mixed = jnp.einsum("blhk,bhkv,blh->blhv", q, sums, scale)
            return out(arrays, mixed.reshape(x.shape))

        return forward

    def block() -> Layer:
        return mixing_block(settings, made, attend())

    return _embed(settings, made, repeat(settings, block))


def _perceiver(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """A few latent vectors attend to the tokens and to each other; the tokens then read them."""
    import jax.numpy as jnp

    width = settings["width"]
    latents, read, write = made.add(8, width), attention(settings, made), attention(settings, made)

    def block() -> Layer:
        return mixing_block(settings, made, self_attention(settings, made))

    inner = repeat(settings, block)

    def forward(arrays: Arrays, x: Any) -> Any:
        state = jnp.broadcast_to(latents(arrays), (x.shape[0], 8, width))
        state = inner(arrays, state + read(arrays, state, x))
        return x + write(arrays, x, state)

    return _embed(settings, made, forward)


def _convolutional(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Gated convolutions over three positions, each with a residual."""
    import jax
    import jax.numpy as jnp

    width = settings["width"]

    def block() -> Layer:
        kernel, norm = made.add(3, width, 2 * width), make_norm(settings, made, width)

        def forward(arrays: Arrays, x: Any) -> Any:
            y = jax.lax.conv_general_dilated(
                norm(arrays, x),
                kernel(arrays),
                (1,),
                "SAME",
                dimension_numbers=("NWC", "WIO", "NWC"),
            )
            value, gate = jnp.split(y, 2, -1)
            return x + value * jax.nn.sigmoid(gate)

        return forward

    return _embed(settings, made, repeat(settings, block))


def _fnet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Blocks that mix positions and channels by cosine transforms, without weights."""
    import jax.numpy as jnp

    width, length = settings["width"], 2 * settings["length"]
    over_length, over_width = _list_waves(length, length), _list_waves(width, width)

    def mix(_arrays: Arrays, x: Any) -> Any:
        return jnp.einsum("blw,lm,wv->bmv", x, over_length, over_width) / np.sqrt(length * width)

    def block() -> Layer:
        return mixing_block(settings, made, mix)

    return _embed(settings, made, repeat(settings, block))


def _gau(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Gated attention units: one head, squared relus instead of a softmax."""
    import jax
    import jax.numpy as jnp

    width, length = settings["width"], 2 * settings["length"]

    def unit() -> Layer:
        gate, value = dense(made, width, 2 * width), dense(made, width, 2 * width)
        shared, scales, out = dense(made, width, 16), made.add(2, 16), dense(made, 2 * width, width)

        def forward(arrays: Arrays, x: Any) -> Any:
            base, scale = jax.nn.silu(shared(arrays, x)), scales(arrays)
            scores = jnp.einsum("bqs,bks->bqk", base * scale[0], base * scale[1]) / length
            mixed = jnp.square(jax.nn.relu(scores)) @ jax.nn.silu(value(arrays, x))
            return out(arrays, jax.nn.silu(gate(arrays, x)) * mixed)

        return forward

    def block() -> Layer:
        return residual(settings, made, width, unit())

    return _embed(settings, made, repeat(settings, block))


MODELS: dict[str, Callable[[Settings, Parameters], tuple[Layer, Any]]] = {
    "densenet": _densenet,
    "pointnet": _pointnet,
    "contrastive": _contrastive,
    "spectral": _spectral,
    "flow": _flow,
    "linear": _linear,
    "perceiver": _perceiver,
    "convolutional": _convolutional,
    "fnet": _fnet,
    "gau": _gau,
}
