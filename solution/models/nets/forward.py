"""Compute the layers of the nets in numpy, to predict without torch: float32, as torch computes
them."""

from collections.abc import Mapping

import numpy as np

Weights = Mapping[str, np.ndarray]  # float32, by torch's parameter names
BLOCK = 1 << 15
# Coefficients of the polynomial P in x squared, ascending: tanh(x P) = 2 Phi(x) - 1, where Phi is
# the normal distribution. Fitted on 0 to MOST by least squares, weighted for GELU's largest error.
POLYNOMIAL = np.array(
    [7.97872668e-1, 3.63655563e-2, -5.77948808e-5, -4.72814475e-5, 2.79985166e-6, -5.66471834e-8],
    np.float32,
)
HALF, MOST = np.float32(0.5), np.float32(5.2**2)  # tanh is 1 in float32 beyond MOST
NORM_EPSILON, DEVIATION_EPSILON = np.float32(1e-5), np.float32(1e-4)


def linear(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Map (..., inputs) to (..., outputs); add a bias if there is one."""
    product: np.ndarray = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    if bias is not None:
        product += bias
    return product


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


def mlp(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Apply Linear, GELU, Linear."""
    return linear(gelu(linear(x, weights, f"{name}.0")), weights, f"{name}.2")


def layer_norm(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Normalise each row to mean 0 and deviation 1, times weight, plus bias."""
    return scale_rows(x - x.mean(axis=-1, keepdims=True), weights, name)


def scale_rows(centred: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Normalise rows of mean 0 to deviation 1 in place, times weight, plus bias."""
    square = np.einsum("...i,...i->...", centred, centred)[..., None]
    square /= np.float32(centred.shape[-1])
    centred *= 1 / np.sqrt(square + NORM_EPSILON)
    centred *= weights[f"{name}.weight"]
    centred += weights[f"{name}.bias"]
    return centred


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
