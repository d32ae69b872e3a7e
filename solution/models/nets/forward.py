"""The layers of the nets in numpy, to predict without torch: float32, as torch computes them."""

from collections.abc import Mapping

import numpy as np
from scipy.special import erf

Weights = Mapping[str, np.ndarray]  # by the names that torch gives them, float32
HALF_ROOT = np.float32(0.5**0.5)
NORM_EPSILON, DEVIATION_EPSILON = np.float32(1e-5), np.float32(1e-4)


def linear(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """(..., inputs) -> (..., outputs); a bias is added where there is one."""
    product: np.ndarray = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    if bias is not None:
        product += bias
    return product


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the share of a normal distribution below x."""
    share = erf(x * HALF_ROOT)
    share += 1
    share *= x
    share *= np.float32(0.5)
    return share


def mlp(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Linear, GELU, Linear."""
    return linear(gelu(linear(x, weights, f"{name}.0")), weights, f"{name}.2")


def layer_norm(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    """Each row less its mean over its deviation, times weight, plus bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    square = np.einsum("...i,...i->...", centred, centred)[..., None] / np.float32(x.shape[-1])
    centred *= 1 / np.sqrt(square + NORM_EPSILON)
    centred *= weights[f"{name}.weight"]
    centred += weights[f"{name}.bias"]
    return centred


def standardise(x: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Each value less the mean over the `listed` rows (rows,) bool, over their deviation."""
    centred = x - x[listed].mean(axis=0)
    scale = 1 / np.sqrt(np.square(centred[listed]).mean(axis=0) + DEVIATION_EPSILON)
    return np.asarray(centred * scale)
