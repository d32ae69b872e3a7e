"""Define the layers that nets without torch are written in, and compute them in numpy.

A net such as solution.models.layout.layout_forward is written once, as functions of `Layers`.
NumpyLayers computes it, float32 as torch does; solution.serving.onnx_export writes it as an ONNX
graph instead.
"""

import math
from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np

from solution.features.nodes import Scaler

Weights = Mapping[str, np.ndarray]  # float32, by torch's parameter names
Scalers = Mapping[str, Scaler]  # by the name of the table whose columns they standardise
Value = TypeVar("Value")  # an array, or the name of one in a graph
BLOCK = 1 << 15
# Coefficients of the polynomial P in x squared, ascending: tanh(x P) = 2 Phi(x) - 1, where Phi is
# the normal distribution. Fitted on 0 to MOST by least squares, weighted for GELU's largest error.
POLYNOMIAL = np.array(
    [7.97872668e-1, 3.63655563e-2, -5.77948808e-5, -4.72814475e-5, 2.79985166e-6, -5.66471834e-8],
    np.float32,
)
HALF, MOST = np.float32(0.5), np.float32(5.2**2)  # tanh is 1 in float32 beyond MOST
NORM_EPSILON, DEVIATION_EPSILON = np.float32(1e-5), np.float32(1e-4)


class Layers(Protocol[Value]):
    """The operations of a net with fixed weights; a layer is found by its name in torch."""

    weights: Weights

    def weight(self, name: str) -> Value:
        """Return a weight."""

    def linear(self, x: Value, name: str) -> Value:
        """Map (..., inputs) to (..., outputs); add a bias if there is one."""

    def gelu(self, x: Value) -> Value:
        """Return x Phi(x), with Phi the normal distribution."""

    def layer_norm(self, x: Value, name: str) -> Value:
        """Normalise each row to mean 0 and deviation 1, times weight, plus bias."""

    def scale_rows(self, centred: Value, name: str) -> Value:
        """Return the layer_norm of rows of mean 0, which may be overwritten."""

    def scale(self, x: Value, name: str) -> Value:
        """Standardise the columns of the table `name` as in training."""

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""

    def subtract(self, x: Value, y: Value) -> Value:
        """Return x - y."""

    def join(self, *parts: Value) -> Value:
        """Join the columns of tables with equally many rows."""

    def flatten(self, x: Value) -> Value:
        """Map (rows, ...) to (rows, values)."""

    def split_rows(self, x: Value, width: int) -> Value:
        """Map (rows, n x width) to (n x rows, width)."""

    def gather(self, x: Value, rows: Value) -> Value:
        """Select rows of x."""

    def replace_rows(self, x: Value, rows: Value, values: Value) -> Value:
        """Return x, which may be overwritten, with `values` in `rows`, which are distinct."""

    def add_rows(self, x: Value, rows: Value, values: Value) -> Value:
        """Return x, which may be overwritten, with `values` added in `rows`, which are distinct."""

    def mean_of(self, x: Value, sources: Value, targets: Value) -> Value:
        """Return the mean (rows of x, width) over each target's sources; 0 if it has none."""

    def mean_row(self, x: Value) -> Value:
        """Return the mean (1, width) of the rows."""

    def most_row(self, x: Value) -> Value:
        """Return the largest (1, width) of each column."""

    def repeat(self, row: Value, x: Value) -> Value:
        """Repeat a row (1, width) as often as x has rows."""


def mlp(layers: Layers[Value], x: Value, name: str) -> Value:
    """Apply Linear, GELU, Linear."""
    return layers.linear(layers.gelu(layers.linear(x, f"{name}.0")), f"{name}.2")


def embed_nodes(layers: Layers[Value], opcodes: Value, numeric: Value) -> Value:
    """Return nodes (nodes, width) without configurations: the NodeMlp of layout and tile nets."""
    named = layers.gather(layers.weight("opcode.weight"), opcodes)
    return mlp(layers, layers.join(named, layers.scale(numeric, "numeric")), "node")


class NumpyLayers:
    """Compute layers in numpy; equal rows of a product may round differently."""

    def __init__(self, weights: Weights, scalers: Scalers) -> None:
        self.weights, self._scalers = weights, scalers

    def weight(self, name: str) -> np.ndarray:
        return self.weights[name]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        product: np.ndarray = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        if bias is not None:
            product += bias
        return product

    def gelu(self, x: np.ndarray) -> np.ndarray:
        return gelu(x)

    def layer_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return self.scale_rows(x - x.mean(axis=-1, keepdims=True), name)

    def scale_rows(self, centred: np.ndarray, name: str) -> np.ndarray:
        square = np.einsum("...i,...i->...", centred, centred)[..., None]
        square /= np.float32(centred.shape[-1])
        centred *= 1 / np.sqrt(square + NORM_EPSILON)
        centred *= self.weights[f"{name}.weight"]
        centred += self.weights[f"{name}.bias"]
        return centred

    def scale(self, x: np.ndarray, name: str) -> np.ndarray:
        return self._scalers[name](x)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(x + y)

    def subtract(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(x - y)

    def join(self, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, axis=1)

    def flatten(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), math.prod(x.shape[1:]))  # -1 cannot be inferred without rows

    def split_rows(self, x: np.ndarray, width: int) -> np.ndarray:
        return x.reshape(-1, width)

    def gather(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return x[rows]

    def replace_rows(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        x[rows] = values
        return x

    def add_rows(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        x[rows] += values
        return x

    def mean_of(self, x: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sums = np.zeros_like(x)
        np.add.at(sums, targets, x[sources])
        counts = np.bincount(targets, minlength=len(x)).astype(np.float32)
        return np.asarray(sums / np.maximum(counts, 1)[:, None])

    def mean_row(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(axis=0, keepdims=True))

    def most_row(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.max(axis=0, keepdims=True))

    def repeat(self, row: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.repeat(row, len(x), axis=0)


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x Phi(x), with Phi the normal distribution; the error is below 2e-6.

    Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016, whose tanh has two terms of
    the polynomial (error 5e-4). scipy's erf takes several times as long.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    # A block at a time, so that intermediate arrays stay in the processor's cache.
    for first in range(0, len(flat), BLOCK):
        part, half = flat[first : first + BLOCK], result[first : first + BLOCK]
        square = part * part
        np.minimum(square, MOST, out=square)
        share = square * POLYNOMIAL[-1]
        for coefficient in POLYNOMIAL[-2:0:-1]:
            share += coefficient
            share *= square
        share += POLYNOMIAL[0]
        share *= part
        np.tanh(share, out=share)
        np.multiply(part, HALF, out=half)
        share *= half
        half += share
    return result.reshape(x.shape)


def standardise(x: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Standardise values by mean and deviation of the `listed` rows (rows,) bool."""
    return put_on_scale(x, *find_scale(x[listed]))


def find_scale(listed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (values,) of the rows (rows, values), and 1 / deviation (values,)."""
    mean = listed.mean(axis=0)
    return mean, 1 / np.sqrt(np.square(listed - mean).mean(axis=0) + DEVIATION_EPSILON)


def put_on_scale(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return (x - mean) * scale."""
    return np.asarray((x - mean) * scale)
