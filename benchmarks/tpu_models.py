"""Generate models of realistic size from a seed, for a training set of programs for a TPU.

The families are written from their papers: residual and depthwise convolutional nets, the U-Net of
a diffusion model, recurrent nets, recommendation models, graph nets, mixers, and transformers
(encoders, decoders, encoder and decoder, mixture of experts). A model is a forward pass or a
training step with an optimizer, in float32 or bfloat16. Its arguments are shapes without numbers,
so it can be compiled but not run. jax is imported when a program is built, which happens in a child
process only.

Sources: He and others, "Deep Residual Learning" (2015); Sandler and others, "MobileNetV2" (2018);
Ho and others, "Denoising Diffusion Probabilistic Models" (2020); Hochreiter and Schmidhuber, "Long
Short-Term Memory" (1997); Naumov and others, "DLRM" (2019); Gilmer and others, "Neural Message
Passing" (2017); Tolstikhin and others, "MLP-Mixer" (2021); Vaswani and others, "Attention Is All
You Need" (2017); Touvron and others, "LLaMA" (2023); Fedus and others, "Switch Transformers"
(2021).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

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
    self_attention,
)

FAMILIES = {
    "xla": ("resnet", "mobilenet", "unet", "lstm", "dlrm", "message", "mixer"),
    "nlp": ("encoder", "decoder", "translator", "experts"),
}
ACTIVATIONS = ("relu", "gelu", "silu", "tanh")
OPTIMIZERS = ("sgd", "momentum", "adam")
VOCABULARY = 8192  # rows of a language model's embedding table
CLASSES = 1000
RATE = 1e-3  # learning rate; it changes no shape


def draw_settings(family: str, generator: np.random.Generator) -> Settings:
    """Draw the settings of a random model of a family."""
    pick = generator.choice
    is_image = family in ("resnet", "mobilenet", "unet")
    return {
        "family": family,
        "depth": int(generator.integers(1, 5)),
        "width": int(pick((32, 64, 96, 128) if is_image else (128, 256, 384, 512, 768, 1024))),
        "batch": int(pick((4, 8, 16, 32, 64, 128) if is_image else (1, 4, 8, 16, 32))),
        "length": int(pick((28, 32, 56, 64) if is_image else (64, 128, 196, 256, 512))),
        "heads": int(pick((4, 8))),
        "activation": str(pick(ACTIVATIONS)),
        "norm": str(pick(("batch", "group", "layer") if is_image else ("layer", "rms"))),
        "dtype": str(pick(("float32", "bfloat16"))),
        "is_gated": bool(generator.random() < 0.4),
        "is_rotary": bool(generator.random() < 0.4),
        "is_shared": bool(generator.random() < 0.2),
        "is_normed_first": bool(generator.random() < 0.7),
        "optimizer": str(pick(OPTIMIZERS)) if generator.random() < 0.45 else "",
    }


def write_file(settings: Settings) -> str:
    """Return the Python source of a file with the model, which can be collected."""
    return f"from benchmarks.tpu_models import build\n\nprogram, arguments = build(**{settings})\n"


def build(**settings: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the model with these settings (see draw_settings), and its arguments.

    The model is a function of (parameters, inputs), and of the optimizer's state in a training
    step. The arguments are trees of jax.ShapeDtypeStruct.
    """
    return assemble(MODELS[settings["family"]], settings)


def assemble(
    make: Callable[[Settings, Parameters], tuple[Layer, Any]], settings: Settings
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the model that `make` builds, or a training step of it, and its arguments."""
    made = Parameters(settings)
    forward, inputs = make(settings, made)
    if not settings["optimizer"]:
        return forward, (made.shapes, inputs)
    return _train(forward, settings, made.shapes), (made.shapes, _state(settings, made), inputs)


# ---- training --------------------------------------------------------------------------------


def _state(settings: Settings, made: Parameters) -> list[Any]:
    """Return the shapes of the optimizer's moments: none, one or two for each parameter."""
    moments = {"sgd": 0, "momentum": 1, "adam": 2}[settings["optimizer"]]
    return made.shapes * moments


def _train(forward: Layer, settings: Settings, shapes: Sequence[Any]) -> Callable[..., Any]:
    """Return one step of an optimizer.

    The loss is the cross entropy of each row's largest entry, so that the gradient passes through
    a softmax as in classification and language models.
    """
    import jax
    import jax.numpy as jnp

    count = len(shapes)

    def loss(arrays: Arrays, inputs: Any) -> Any:
        scores = jax.nn.log_softmax(forward(arrays, inputs).astype(jnp.float32))
        return -scores.max(-1).mean()

    def step(arrays: Arrays, state: Arrays, inputs: Any) -> Any:
        slopes = jax.grad(loss)(arrays, inputs)
        if settings["optimizer"] == "sgd":
            return [a - RATE * slope for a, slope in zip(arrays, slopes, strict=True)], state
        first = [0.9 * m + slope for m, slope in zip(state[:count], slopes, strict=True)]
        if settings["optimizer"] == "momentum":
            return [a - RATE * m for a, m in zip(arrays, first, strict=True)], first
        second = [0.99 * v + s * s for v, s in zip(state[count:], slopes, strict=True)]
        moved = [
            a - RATE * m / (jnp.sqrt(v) + 1e-8)
            for a, m, v in zip(arrays, first, second, strict=True)
        ]
        return moved, [*first, *second]

    return step


# ---- images ----------------------------------------------------------------------------------


def _image(settings: Settings, made: Parameters) -> Any:
    return made.activations(settings["batch"], settings["length"], settings["length"], 3)


def _classify(made: Parameters, width: int) -> Layer:
    head = dense(made, width, CLASSES)
    return lambda arrays, x: head(arrays, x.mean((1, 2)))


def _unit(
    settings: Settings, made: Parameters, convolve: Layer, width: int, *, is_last: bool = False
) -> Layer:
    """Return a convolution, a normalization and an activation."""
    activate, norm = find_activation(settings), make_norm(settings, made, width)
    if is_last:
        return lambda arrays, x: norm(arrays, convolve(arrays, x))
    return lambda arrays, x: activate(norm(arrays, convolve(arrays, x)))


def _resnet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Stages of blocks, each stage with twice the channels and half the side."""
    width, activate = settings["width"], find_activation(settings)
    unit = partial(_unit, settings, made)
    layers = [unit(conv(made, 7 if settings["is_gated"] else 3, 3, width, 2), width)]

    def block(wide: int, out: int, stride: int) -> Layer:
        middle = out // 4 if settings["is_shared"] else out
        inner = [unit(conv(made, 3, wide, middle, stride), middle)]
        if middle < out:  # a bottleneck
            inner = [
                unit(conv(made, 1, wide, middle), middle),
                unit(conv(made, 3, middle, middle, stride), middle),
            ]
        size = 1 if middle < out else 3
        inner.append(unit(conv(made, size, middle, out), out, is_last=True))
        body, short = chain(inner), None
        if wide != out or stride > 1:
            short = unit(conv(made, 1, wide, out, stride), out, is_last=True)
        return lambda arrays, x: activate(
            body(arrays, x) + (short(arrays, x) if short is not None else x)
        )

    for stage in range(min(3, settings["depth"])):
        out = width << stage
        layers.append(block(out >> min(1, stage), out, 1 + min(1, stage)))
        layers += [block(out, out, 1) for _ in range(settings["depth"] // 2)]
    return chain([*layers, _classify(made, out)]), _image(settings, made)


def _mobilenet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Inverted residual blocks with depthwise convolutions."""
    width = settings["width"]
    unit = partial(_unit, settings, made)
    layers = [unit(conv(made, 3, 3, width, 2), width)]

    def block(stride: int) -> Layer:
        wide = 4 * width
        body = chain([
            unit(conv(made, 1, width, wide), wide),
            unit(conv(made, 3, wide, wide, stride, groups=wide), wide),
            unit(conv(made, 1, wide, width), width, is_last=True),
        ])  # fmt: skip
        return body if stride > 1 else lambda arrays, x: x + body(arrays, x)

    layers += [block(1 + number % 2) for number in range(2 * settings["depth"])]
    return chain([*layers, _classify(made, width)]), _image(settings, made)


def _unet(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """The net of a diffusion model: down, attention at the smallest side, up with skips."""
    import jax.numpy as jnp

    width, levels = settings["width"], min(3, settings["depth"])
    unit = partial(_unit, settings, made)
    first = conv(made, 3, 3, width)
    time = dense(made, 1, width)
    downs, ups = [], []
    for level in range(levels):
        wide = width << level
        downs.append(unit(conv(made, 3, wide, 2 * wide, 2), 2 * wide))
        ups.append(unit(conv(made, 3, 3 * wide, wide), wide))
    deepest = width << levels
    attend = self_attention({**settings, "width": deepest}, made)
    last = conv(made, 3, width, 3)

    def forward(arrays: Arrays, inputs: Any) -> Any:
        image, noise = inputs
        x = first(arrays, image) + time(arrays, noise)[:, None, None]
        kept = []
        for down in downs:
            kept.append(x)
            x = down(arrays, x)
        flat = x.reshape(x.shape[0], -1, deepest)
        x = x + attend(arrays, flat).reshape(x.shape)
        for up, skip in zip(ups[::-1], kept[::-1], strict=True):
            larger = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)[:, : skip.shape[1], : skip.shape[2]]
            x = up(arrays, jnp.concatenate([larger, skip], -1))
        return last(arrays, x)

    return forward, (_image(settings, made), made.activations(settings["batch"], 1))


# ---- sequences, tables, graphs ---------------------------------------------------------------


def _lstm(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Layers of LSTM cells, or of gated recurrent units if the model is gated."""
    import jax
    import jax.numpy as jnp

    width, parts = settings["width"], 3 if settings["is_gated"] else 4
    layers = [
        (dense(made, width, parts * width), dense(made, width, parts * width))
        for _ in range(settings["depth"])
    ]
    head = dense(made, width, CLASSES)

    def cell(state: Any, read: Any, kept: Any) -> Any:
        hidden, memory = state
        if settings["is_gated"]:
            (a, b, c), (d, e, f) = jnp.split(read, 3, -1), jnp.split(kept, 3, -1)
            reset, update = jax.nn.sigmoid(a + d), jax.nn.sigmoid(b + e)
            return update * hidden + (1 - update) * jnp.tanh(c + reset * f), memory
        into, forget, out, new = jnp.split(read + kept, 4, -1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(into) * jnp.tanh(new)
        return jax.nn.sigmoid(out) * jnp.tanh(memory), memory

    def forward(arrays: Arrays, x: Any) -> Any:
        for read, keep in layers:

            def step(state: Any, now: Any, keep: Layer = keep) -> Any:
                state = cell(state, now, keep(arrays, state[0]))
                return state, state[0]

            zero = jnp.zeros_like(x[0])
            x = jax.lax.scan(step, (zero, zero), read(arrays, x))[1]
        return head(arrays, x[-1])

    return forward, made.activations(settings["length"], settings["batch"], width)


def _dlrm(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Embeddings of categories, scalar products of all pairs of them, and dense layers."""
    import jax.numpy as jnp

    width, activate = settings["width"] // 4, find_activation(settings)
    rows, count = settings["batch"] * 64, 4 * settings["depth"]
    tables = [made.add(50_000, width) for _ in range(count)]
    bottom = [dense(made, 13, 4 * width), dense(made, 4 * width, width)]
    pairs = (count + 1) * count // 2
    top = [dense(made, width + pairs, 4 * width), dense(made, 4 * width, 16)]

    def forward(arrays: Arrays, inputs: Any) -> Any:
        numbers, categories = inputs
        x = numbers
        for layer in bottom:
            x = activate(layer(arrays, x))
        found = [table(arrays)[categories[:, n]] for n, table in enumerate(tables)]
        vectors = jnp.stack([x, *found], 1)
        products = jnp.einsum("bid,bjd->bij", vectors, vectors)
        above = np.triu_indices(count + 1, 1)
        y = jnp.concatenate([x, products[:, above[0], above[1]]], -1)
        return top[1](arrays, activate(top[0](arrays, y)))

    return forward, (made.activations(rows, 13), made.numbers(rows, count))


def _message(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """Message passing: edges read both of their nodes, nodes sum their edges' messages."""
    import jax
    import jax.numpy as jnp

    width, nodes = settings["width"] // 2, 16 * settings["length"]
    activate = find_activation(settings)
    blocks = [
        (dense(made, 2 * width, width), dense(made, 2 * width, width))
        for _ in range(settings["depth"])
    ]
    head, norm = dense(made, width, 16), make_norm(settings, made, width)

    def forward(arrays: Arrays, inputs: Any) -> Any:
        x, edges = inputs
        for edge, node in blocks:
            ends = jnp.concatenate([x[edges[0]], x[edges[1]]], -1)
            sums = jax.ops.segment_sum(activate(edge(arrays, ends)), edges[1], nodes)
            x = x + activate(node(arrays, jnp.concatenate([norm(arrays, x), sums], -1)))
        return head(arrays, x)

    return forward, (made.activations(nodes, width), made.numbers(2, 4 * nodes))


def _mixer(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    width, length = settings["width"], settings["length"]

    def block() -> Layer:
        mix = feed_forward(settings, made, length)
        return mixing_block(
            settings, made, lambda arrays, x: mix(arrays, x.swapaxes(1, 2)).swapaxes(1, 2)
        )

    body, head = repeat(settings, block), dense(made, width, CLASSES)
    inputs = made.activations(settings["batch"], length, width)
    return lambda arrays, x: head(arrays, body(arrays, x).mean(1)), inputs


# ---- language --------------------------------------------------------------------------------


def _blocks(settings: Settings, made: Parameters, *, is_causal: bool) -> Layer:
    """Return blocks of attention and feed-forward layers."""

    def block() -> Layer:
        attend = self_attention(settings, made, is_causal=is_causal)
        inner = _experts_layer if settings["family"] == "experts" else feed_forward
        return mixing_block(settings, made, attend, inner)

    return repeat(settings, block)


def _experts_layer(settings: Settings, made: Parameters, width: int) -> Layer:
    """Return a switch layer: each token goes to one of the experts, at most `room` to each.

    Tokens are sent and gathered by dots with a mask, as on TPUs.
    """
    import jax
    import jax.numpy as jnp

    experts = settings["heads"]
    choose = dense(made, width, experts)
    up, down = made.add(experts, width, 2 * width), made.add(experts, 2 * width, width)
    activate = find_activation(settings)

    def forward(arrays: Arrays, x: Any) -> Any:
        room = 2 * x.shape[1] // experts
        shares = jax.nn.softmax(choose(arrays, x).astype(jnp.float32))
        chosen = jax.nn.one_hot(shares.argmax(-1), experts)
        position = (jnp.cumsum(chosen, 1) * chosen - 1).astype(jnp.int32)
        mask = (jax.nn.one_hot(position, room) * chosen[..., None]).astype(x.dtype)
        sent = jnp.einsum("bled,blw->bedw", mask, x)
        hidden = activate(jnp.einsum("bedw,ewh->bedh", sent, up(arrays)))
        back = jnp.einsum("bedh,ehw->bedw", hidden, down(arrays))
        weighed = mask * (shares * chosen).sum(-1)[..., None, None].astype(x.dtype)
        return jnp.einsum("bled,bedw->blw", weighed, back)

    return forward


def _language(settings: Settings, made: Parameters, *, is_causal: bool) -> tuple[Layer, Any]:
    """Embed tokens, apply the blocks, and score the vocabulary with the embedding table."""
    table = made.add(VOCABULARY, settings["width"])
    body = _blocks(settings, made, is_causal=is_causal)
    norm = make_norm(settings, made, settings["width"])

    def forward(arrays: Arrays, tokens: Any) -> Any:
        x = norm(arrays, body(arrays, table(arrays)[tokens]))
        return x @ table(arrays).T if is_causal else x[:, 0] @ table(arrays).T

    return forward, made.numbers(settings["batch"], settings["length"])


def _translator(settings: Settings, made: Parameters) -> tuple[Layer, Any]:
    """An encoder, and a decoder that attends to what the encoder made."""
    width = settings["width"]
    table = made.add(VOCABULARY, width)
    encode = _blocks(settings, made, is_causal=False)
    decode = _blocks(settings, made, is_causal=True)
    attend, norm = attention(settings, made), make_norm(settings, made, width)

    def forward(arrays: Arrays, inputs: Any) -> Any:
        source, target = (table(arrays)[tokens] for tokens in inputs)
        memory, x = encode(arrays, source), decode(arrays, target)
        x = norm(arrays, x + attend(arrays, x, memory))
        return x @ table(arrays).T

    tokens = made.numbers(settings["batch"], settings["length"])
    return forward, (tokens, tokens)


MODELS: dict[str, Callable[[Settings, Parameters], tuple[Layer, Any]]] = {
    "resnet": _resnet,
    "mobilenet": _mobilenet,
    "unet": _unet,
    "lstm": _lstm,
    "dlrm": _dlrm,
    "message": _message,
    "mixer": _mixer,
    "encoder": partial(_language, is_causal=False),
    "decoder": partial(_language, is_causal=True),
    "translator": _translator,
    "experts": partial(_language, is_causal=True),
}
