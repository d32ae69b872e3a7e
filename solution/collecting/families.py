"""Generate programs of many architectures from a seed, for the training sample.

An architecture is all that determines a program except its tensors' sizes: depth, activations,
normalization, residuals, pooling, with or without a training step. jax is imported when a program
is built, which happens in a child process only.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from solution.system.errors import InputError
from solution.system.files import make_folder, write_bytes

ACTIVATIONS = ("relu", "gelu", "tanh", "silu", "sigmoid", "softplus")
NORMS = ("none", "layer", "rms")
FAMILIES = {"xla": ("convnet", "mlp", "gnn", "mixer", "recurrent"), "nlp": ("transformer",)}
Settings = dict[str, Any]


def draw_settings(families: Sequence[str], generator: np.random.Generator) -> Settings:
    """Draw the settings of a random program of one of the families."""
    pick = generator.choice
    family = str(pick(families))
    return {
        "family": family,
        "depth": int(generator.integers(1, 4 if family == "transformer" else 6)),
        "width": int(pick((16, 24, 32, 48) if family == "convnet" else (48, 64, 96, 128, 192))),
        "batch": int(pick((2, 4, 8))),
        "length": int(pick((12, 16, 24, 32))),
        "activation": str(pick(ACTIVATIONS)),
        "norm": str(pick(NORMS)),
        "residual": bool(generator.random() < 0.5),
        "gated": bool(generator.random() < 0.3),
        "causal": bool(generator.random() < 0.5),
        "pooled": bool(generator.random() < 0.5),
        "train": bool(generator.random() < 0.35),
    }


def write_file(settings: Settings) -> str:
    """Return the text of a Python file, for `fastslow collect`, that builds the program."""
    return (
        "from solution.collecting.families import build\n\n"
        f"program, arguments = build(**{settings})\n"
    )


def write_programs(folder: Path, family: str, count: int) -> list[Path]:
    """Write the files of `count` programs of a family, the same in every call; return their paths.
    Raises InputError for an unknown family."""
    known = [name for families in FAMILIES.values() for name in families]
    if family not in known:
        raise InputError(f"{family!r}: expected one of the families {', '.join(known)}.")
    paths = [folder / f"{family}_{number:03}.py" for number in range(count)]
    make_folder(folder)
    for number, path in enumerate(paths):
        settings = draw_settings((family,), np.random.default_rng([number, *family.encode()]))
        write_bytes(write_file(settings).encode(), path)
    return paths


def build(**settings: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a program, a function of (weights, inputs), and its arguments. `settings`: a result of
    draw_settings."""
    weights = Weights(np.random.default_rng(0))
    batch, length, width = settings["batch"], settings["length"], settings["width"]
    sizes = {
        "convnet": (batch, length, length, 8),
        "mlp": (batch * 16, width),
        "gnn": (4 * length, width),
        "mixer": (batch, length, width),
        "recurrent": (length, batch, width),
        "transformer": (batch, length, width),
    }[settings["family"]]
    inputs = weights.draw(*sizes)
    body = globals()[f"_{settings['family']}"]
    forward = body(settings, weights)
    if not settings["train"]:
        return forward, (weights.all, inputs)
    return _train(forward), (weights.all, inputs)


class Weights:
    """The weight arrays of a program. Its layers refer to an array by its index."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self.all: list[np.ndarray] = []

    def draw(self, *sizes: int) -> np.ndarray:
        scale = 1 / np.sqrt(max(1, sizes[-2] if len(sizes) > 1 else 1))
        return (scale * self._generator.standard_normal(sizes)).astype(np.float32)

    def add(self, *sizes: int) -> int:
        self.all.append(self.draw(*sizes))
        return len(self.all) - 1


def _train(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a program that does one step of gradient descent; loss: mean square of the output."""
    import jax

    def step(weights: Any, inputs: Any) -> Any:
        def loss(weights: Any) -> Any:
            return (forward(weights, inputs) ** 2).mean()

        slopes = jax.grad(loss)(weights)
        return [array - 0.01 * slope for array, slope in zip(weights, slopes, strict=True)]

    return step


def _activate(settings: Settings) -> Callable[[Any], Any]:
    import jax

    return getattr(jax.nn, settings["activation"])


def _normalise(settings: Settings, x: Any) -> Any:
    import jax.numpy as jnp

    if settings["norm"] == "none":
        return x
    if settings["norm"] == "layer":
        x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def _dense(settings: Settings, weights: Weights, width: int) -> Callable[..., Any]:
    """Return a layer: two matrix products and an activation; `settings` may add a gate, a residual
    and a normalization."""
    activate = _activate(settings)
    up, down = weights.add(width, 2 * width), weights.add(2 * width, width)
    gate = weights.add(width, 2 * width) if settings["gated"] else None

    def layer(arrays: Any, x: Any) -> Any:
        hidden = activate(_normalise(settings, x) @ arrays[up])
        if gate is not None:
            hidden = hidden * (x @ arrays[gate])
        return hidden @ arrays[down] + (x if settings["residual"] else 0)

    return layer


def _chain(layers: list[Callable[..., Any]]) -> Callable[..., Any]:
    def forward(arrays: Any, x: Any) -> Any:
        for layer in layers:
            x = layer(arrays, x)
        return x

    return forward


def _mlp(settings: Settings, weights: Weights) -> Callable[..., Any]:
    return _chain([_dense(settings, weights, settings["width"]) for _ in range(settings["depth"])])


def _gnn(settings: Settings, weights: Weights) -> Callable[..., Any]:
    width, nodes, activate = settings["width"], 4 * settings["length"], _activate(settings)
    edges = weights.add(nodes, nodes)
    mixes = [weights.add(width, width) for _ in range(settings["depth"])]

    def forward(arrays: Any, x: Any) -> Any:
        for mix in mixes:
            messages = arrays[edges] @ _normalise(settings, x)
            x = activate(messages @ arrays[mix]) + (x if settings["residual"] else 0)
        return x.reshape(4, -1, width).max(1) if settings["pooled"] else x

    return forward


def _mixer(settings: Settings, weights: Weights) -> Callable[..., Any]:
    def block() -> Callable[..., Any]:
        tokens = _dense(settings, weights, settings["length"])
        channels = _dense(settings, weights, settings["width"])
        return lambda arrays, x: channels(
            arrays, tokens(arrays, x.transpose(0, 2, 1)).transpose(0, 2, 1)
        )

    return _chain([block() for _ in range(settings["depth"])])


def _recurrent(settings: Settings, weights: Weights) -> Callable[..., Any]:
    import jax

    width, activate = settings["width"], _activate(settings)
    layers = [
        (weights.add(width, width), weights.add(width, width)) for _ in range(settings["depth"])
    ]

    def forward(arrays: Any, x: Any) -> Any:
        for first, second in layers:

            def step(state: Any, now: Any, first: int = first, second: int = second) -> Any:
                state = activate(now @ arrays[first] + state @ arrays[second])
                return state, state

            x = jax.lax.scan(step, 0 * x[0], _normalise(settings, x))[1]
        return x

    return forward


def _convnet(settings: Settings, weights: Weights) -> Callable[..., Any]:
    import jax

    activate, width = _activate(settings), settings["width"]
    widths = [8, *(width for _ in range(settings["depth"]))]
    kernels = [weights.add(3, 3, *pair) for pair in zip(widths, widths[1:], strict=False)]
    head = weights.add(width, 16)
    numbers = ("NHWC", "HWIO", "NHWC")

    def forward(arrays: Any, x: Any) -> Any:
        for number, kernel in enumerate(kernels):
            stride = 2 if settings["gated"] and number == 1 else 1
            y = jax.lax.conv_general_dilated(
                x, arrays[kernel], (stride, stride), "SAME", dimension_numbers=numbers
            )
            y = activate(_normalise(settings, y))
            x = x + y if settings["residual"] and x.shape == y.shape else y
        x = x.mean((1, 2)) if settings["pooled"] else x.reshape(-1, width)
        return x @ arrays[head]

    return forward


def _transformer(settings: Settings, weights: Weights) -> Callable[..., Any]:
    def block() -> Callable[..., Any]:
        attend = _attention(settings, weights)
        dense = _dense(settings, weights, settings["width"])
        return lambda arrays, x: dense(arrays, x + attend(arrays, x))

    return _chain([block() for _ in range(settings["depth"])])


def _attention(settings: Settings, weights: Weights) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    width, heads = settings["width"], 4
    query, key, value, out = (weights.add(width, width) for _ in range(4))

    def split(x: Any) -> Any:
        return x.reshape(*x.shape[:2], heads, width // heads).transpose(0, 2, 1, 3)

    def attend(arrays: Any, x: Any) -> Any:
        x = _normalise(settings, x)
        scores = split(x @ arrays[query]) @ split(x @ arrays[key]).transpose(0, 1, 3, 2)
        if settings["causal"]:
            length = x.shape[1]
            scores = jnp.where(jnp.tri(length, dtype=bool), scores, -1e9)
        mixed = jax.nn.softmax(scores / (width // heads) ** 0.5) @ split(x @ arrays[value])
        return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ arrays[out]

    return attend
