"""Define the operations of nets that predict without torch, and compute them in numpy.

A net such as solution.models.layout.layout_forward is written once, as functions that call the
methods of `Layers`. NumpyLayers computes the net in float32, as torch does; GraphLayers of
solution.serving.onnx_export writes the net as an ONNX graph instead. Sparse matrices are plain CSR
arrays, which callers multiply with numpy arrays or with torch tensors.
"""

import math
import sys
from collections.abc import Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from solution.features.nodes import Scaler

Weights = Mapping[str, np.ndarray]  # float32, by torch's parameter names
Scalers = Mapping[str, Scaler]  # table name -> the Scaler that standardises the table's columns
Value = TypeVar("Value")  # an array, or its name in an ONNX graph
BLOCK = 1 << 15  # number of values that gelu computes at once
# Coefficients, of ascending powers of x squared, of a polynomial P that is fitted so that tanh(x P)
# = 2 Phi(x) - 1, with Phi the normal distribution function.
POLYNOMIAL = np.array(
    [7.97872668e-1, 3.63655563e-2, -5.77948808e-5, -4.72814475e-5, 2.79985166e-6, -5.66471834e-8],
    np.float32,
)
# in gelu, tanh is 1 in float32 if x squared is above MOST
HALF, MOST = np.float32(0.5), np.float32(5.2**2)
# added to the variance in layer norms, and in find_scale
NORM_EPSILON, DEVIATION_EPSILON = np.float32(1e-5), np.float32(1e-4)


class Layers(Protocol[Value]):
    """The operations of a net with fixed weights; `name` is a layer's name in torch. An argument
    that "may be overwritten" may be changed in place."""

    weights: Weights

    def weight(self, name: str) -> Value:
        """Return the weight array with this name."""

    def linear(self, x: Value, name: str) -> Value:
        """Return x W^T + b (or no b) with the layer's weights: (..., inputs) -> (..., outputs)."""

    def gelu(self, x: Value) -> Value:
        """Return x Phi(x), with Phi the normal distribution function."""

    def layer_norm(self, x: Value, name: str) -> Value:
        """Return rows of mean 0 and deviation 1, times the layer's weight, plus its bias."""

    def scale_rows(self, centred: Value, name: str) -> Value:
        """Return layer_norm of rows that have mean 0 already; `centred` may be overwritten."""

    def scale(self, x: Value, name: str) -> Value:
        """Return the columns of x standardised as table `name` was in training."""

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""

    def subtract(self, x: Value, y: Value) -> Value:
        """Return x - y."""

    def join(self, *parts: Value) -> Value:
        """Concatenate the columns of tables (rows, columns) that have equally many rows."""

    def flatten(self, x: Value) -> Value:
        """Reshape (rows, ...) to (rows, values)."""

    def split_rows(self, x: Value, width: int) -> Value:
        """Reshape (rows, n x width) to (n x rows, width): each row becomes n adjacent rows."""

    def gather(self, x: Value, rows: Value) -> Value:
        """Return x[rows]."""

    def replace_rows(self, x: Value, rows: Value, values: Value) -> Value:
        """Return x with x[rows] = values; row numbers are distinct, and x may be overwritten."""

    def add_rows(self, x: Value, rows: Value, values: Value) -> Value:
        """Return x with x[rows] += values; row numbers are distinct, and x may be overwritten."""

    def mean_of(self, x: Value, sources: Value, targets: Value) -> Value:
        """Return for each row t of x the mean of x[sources] over edges with target t, else 0.
        Shapes: x (rows, width), sources and targets (edges,)."""

    def mean_row(self, x: Value) -> Value:
        """Return the mean (1, width) over the rows of x."""

    def most_row(self, x: Value) -> Value:
        """Return the maximum (1, width) over the rows of x."""

    def repeat(self, row: Value, x: Value) -> Value:
        """Return `row` (1, width) repeated as many times as x has rows: (rows, width)."""


def mlp(layers: Layers[Value], x: Value, name: str) -> Value:
    """Apply the layers NAME.0 (linear), GELU and NAME.2 (linear) to x."""
    return layers.linear(layers.gelu(layers.linear(x, f"{name}.0")), f"{name}.2")


def embed_nodes(layers: Layers[Value], opcodes: Value, numeric: Value) -> Value:
    """Return a vector of each node (nodes, width): an MLP of its opcode and numeric features."""
    named = layers.gather(layers.weight("opcode.weight"), opcodes)
    return mlp(layers, layers.join(named, layers.scale(numeric, "numeric")), "node")


class NumpyLayers:
    """The operations of `Layers` in numpy. A matrix product may round equal rows of x
    differently."""

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
        # not reshape(len(x), -1), which fails if there are no rows
        return x.reshape(len(x), math.prod(x.shape[1:]))

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
    """Return x Phi(x), Phi the normal distribution function, with an error below 2e-6, faster than
    scipy's erf. Source: Hendrycks and Gimpel, 2016; their polynomial has two terms, ours six."""
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    # x / 2 + x / 2 tanh(x P), with P by Horner's rule, one block of values at a time, so that
    # intermediate arrays stay in the processor's cache.
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
    """Standardise columns of x (rows, values) by mean and deviation of the rows x[listed]."""
    return put_on_scale(x, *find_scale(x[listed]))


def find_scale(listed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and 1 / deviation (values,) of each column of `listed` (rows, values)."""
    mean = listed.mean(axis=0)
    return mean, 1 / np.sqrt(np.square(listed - mean).mean(axis=0) + DEVIATION_EPSILON)


def put_on_scale(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return (x - mean) * scale."""
    return np.asarray((x - mean) * scale)


LOOPS = "scipy.sparse._sparsetools"  # the module of scipy's C loops for sparse matrices


class SparseRows(NamedTuple):
    """A sparse matrix in CSR format: row i has the entries starts[i] : starts[i + 1], in any order;
    entries of one column add up. scipy's classes sort and check entries, which takes longer than
    the matrix product. `starts` and `columns` have one integer type; int32 is faster."""

    starts: np.ndarray  # (rows + 1,) int32 or int64: first entry of each row, then the entry count
    columns: np.ndarray  # (entries,), the type of `starts`: column of each entry
    values: np.ndarray  # (entries,) float32: value of each entry
    num_columns: int

    def transposed(self) -> "SparseRows":
        """Return the transposed matrix."""
        # imported here, because it is slow to import and prediction does not need it
        from scipy.sparse import csr_array

        num_rows = len(self.starts) - 1
        shape = (num_rows, self.num_columns)
        turned = csr_array(csr_array((self.values, self.columns, self.starts), shape=shape).T)
        return SparseRows(turned.indptr, turned.indices, turned.data, num_rows)

    def cut(self, rows: slice) -> "SparseRows":
        """Return the matrix of a range of rows; `columns` and `values` are shared, not copied."""
        return self._replace(starts=self.starts[rows.start : rows.stop + 1])

    def product(self, x: np.ndarray) -> np.ndarray:
        """Return the matrix product with x (columns, width) float32: (rows, width) float32."""
        return sum_entries(self.starts, self.columns, x, self.values)


def sum_entries(
    starts: np.ndarray, columns: np.ndarray, x: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the matrix product (rows, width) of a sparse CSR matrix and x (columns, width), in x's
    type. Row i has the entries starts[i] : starts[i + 1] of `columns` and `weights` (by default
    1)."""
    sums = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    values = np.ones(len(columns), x.dtype) if weights is None else weights
    kind = np.result_type(starts, columns)
    index = (np.asarray(part, kind) for part in (starts, columns))
    _load_loops().csr_matvecs(*sums.shape[:1], *x.shape, *index, values, x.ravel(), sums.ravel())
    return sums


@cache
def _load_loops() -> ModuleType:
    """Return scipy's C loops for CSR matrices, without the slow import of scipy.sparse."""
    if LOOPS in sys.modules:
        return sys.modules[LOOPS]
    found = find_spec("scipy")
    folder = Path(found.origin if found and found.origin else "").parent / "sparse"
    for suffix in EXTENSION_SUFFIXES:
        spec = spec_from_file_location(LOOPS, folder / f"_sparsetools{suffix}")
        if spec is not None and spec.loader is not None and Path(spec.origin or "").is_file():
            loops = module_from_spec(spec)
            spec.loader.exec_module(loops)
            return loops
    from scipy.sparse import _sparsetools  # fallback: this scipy has the C loops in another file

    return _sparsetools


def select(positions: np.ndarray, size: int) -> SparseRows:
    """Return the sparse matrix (n, size) with matrix @ x == x[positions]."""
    count = len(positions)
    return SparseRows(
        np.arange(count + 1, dtype=np.int32),
        positions.astype(np.int32),
        np.ones(count, np.float32),
        size,
    )
