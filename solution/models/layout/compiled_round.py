"""Compute a round of the layout net on a CPU, one colour at a time from messages to values.

torch passes over all colours once for each operation of solution.models.layout.computation: sum,
norm, GELU, selection. Here one colour is finished before the next one starts, so that intermediate
values stay in the processor's cache. The values agree up to rounding.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from solution.models.layout.steps import Round

FLOAT = np.float32
ROOT_HALF, DENSITY_AT_ZERO = FLOAT(np.sqrt(0.5)), FLOAT(1 / np.sqrt(2 * np.pi))
MOST_ERF = FLOAT(4)  # erf is 1 in float32 from here on
MOST_EXPONENT, PARTS = FLOAT(32), FLOAT(64)
# Sums may be reordered, which vectorising needs; NaN stays NaN. Loops over a row must have a length
# that the compiler does not know: it unrolls others and then does not vectorise them.
FAST: dict[str, Any] = {
    "nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract"}
}  # fmt: skip


class CompiledRound:
    """The part of solution.models.layout.layout_gnn.ColourBlock behind its matrix products, on a
    CPU."""

    def __init__(self, own: Round) -> None:
        self.own = own
        self.known = torch.from_numpy(own.marks.values)

    def prepare_gradient(self) -> None:
        """Do nothing: the gradient needs no preparation."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Compute solution.models.layout.computation.DeviceRound.receive in float32.

        Raises ValueError if shapes do not fit the round; compiled code would read out of bounds.
        """
        half, senders = messages.shape[1], self.own.aggregation.num_columns
        given = [tuple(tensor.shape) for tensor in (messages, kept, extra, norm.weight)]
        expected = [(senders, half), (senders // 3, 2 * half), (len(self.known), half), (half,)]
        if given != expected:
            raise ValueError(f"a round was given shapes {given}, expected {expected}")
        tensors = (messages.float(), kept.float(), extra.float(), norm.weight, norm.bias)
        found: Tensor = _Receive.apply(*tensors, norm.eps, self.own)
        return found


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, epsilon, own = given
        arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
        values, *ctx.kept = _receive(*arrays, FLOAT(epsilon), *_list_entries(own))
        ctx.own = own
        ctx.save_for_backward(*tensors[3:])
        return torch.from_numpy(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0].contiguous().numpy()
        senders = ctx.own.aggregation.num_columns
        scaling = [tensor.detach().contiguous().numpy() for tensor in ctx.saved_tensors]
        found = _hand_back(gradient, *ctx.kept, *scaling, senders, *_list_entries(ctx.own))
        return *map(torch.from_numpy, found), None, None


def _list_entries(own: Round) -> tuple[np.ndarray, ...]:
    rows = own.aggregation
    return own.marks.colours, rows.starts, rows.columns, rows.values, own.parents


@njit(**FAST)
def _erf(x):
    """Return erf(x) with an error below 4e-7: a quotient of polynomials, which can be vectorised.

    Source: the coefficients of Eigen's `erf` for float32 (MPL 2).
    """
    x = min(max(x, -MOST_ERF), MOST_ERF)
    square = x * x
    above = FLOAT(-2.72614225801306e-10)
    above = above * square + FLOAT(2.77068142495902e-08)
    above = above * square + FLOAT(-2.10102402082508e-06)
    above = above * square + FLOAT(-5.69250639462346e-05)
    above = above * square + FLOAT(-7.34990630326855e-04)
    above = above * square + FLOAT(-2.95459980854025e-03)
    above = above * square + FLOAT(-1.60960333262415e-02)
    below = FLOAT(-1.45660718464996e-05)
    below = below * square + FLOAT(-2.13374055278905e-04)
    below = below * square + FLOAT(-1.68282697438203e-03)
    below = below * square + FLOAT(-7.37332916720468e-03)
    below = below * square + FLOAT(-1.42647390514189e-02)
    return x * above / below


@njit(**FAST)
def _density(x):
    """Return the standard normal density, error below 2e-6: the 64th power of exp(-x^2 / 128)."""
    # from -0.5 to 0, where five terms suffice
    part = -min(FLOAT(0.5) * x * x, MOST_EXPONENT) / PARTS
    power = part * FLOAT(1 / 120) + FLOAT(1 / 24)
    power = power * part + FLOAT(1 / 6)
    power = power * part + FLOAT(1 / 2)
    power = (power * part + FLOAT(1)) * part + FLOAT(1)
    for _ in range(6):
        power *= power
    return power * DENSITY_AT_ZERO


@njit(**FAST)
def _receive(
    messages, kept, extra, weight, bias, epsilon, marked, starts, columns, values, parents
):  # fmt: skip
    """Compute one round: the new value (colours after, 2 x half) of each colour.

    Also return what the gradient needs: the normalised sums of messages (colours after, half)
    before weight and bias, and 1 / their standard deviation (colours after,).
    """
    count, half = len(parents), messages.shape[1]
    found = np.empty((count, 2 * half), FLOAT)
    normed, scales = np.empty((count, half), FLOAT), np.empty(count, FLOAT)
    mark = 0
    for row in range(count):
        sums = normed[row]
        sums[:] = 0
        for place in range(starts[row], starts[row + 1]):
            message, factor = messages[columns[place]], values[place]
            for j in range(half):
                sums[j] += factor * message[j]
        if mark < len(marked) and marked[mark] == row:
            for j in range(half):
                sums[j] += extra[mark, j]
            mark += 1
        mean = square = FLOAT(0)
        for j in range(half):
            mean += sums[j]
        mean /= FLOAT(half)
        for j in range(half):
            sums[j] -= mean
            square += sums[j] * sums[j]
        scale = FLOAT(1) / np.sqrt(square / FLOAT(half) + epsilon)
        scales[row] = scale
        own, stays = found[row], kept[parents[row]]
        for j in range(half):
            sums[j] *= scale
            update = sums[j] * weight[j] + bias[j]
            positive = FLOAT(0.5) * update * (FLOAT(1) + _erf(update * ROOT_HALF))
            own[j] = positive + stays[j]
            own[half + j] = positive - update + stays[half + j]  # GELU(-u) = GELU(u) - u
    return found, normed, scales


@njit(**FAST)
def _hand_back(
    gradient, normed, scales, weight, bias, senders, marked, starts, columns, values, parents
):  # fmt: skip
    """Return the gradients of messages, kept, extra, weight and bias from that of the values."""
    count, half = normed.shape
    to_messages = np.zeros((senders, half), FLOAT)
    to_kept = np.zeros((senders // 3, 2 * half), FLOAT)
    to_extra = np.zeros((len(marked), half), FLOAT)
    to_weight, to_bias, change = np.zeros(half, FLOAT), np.zeros(half, FLOAT), np.empty(half, FLOAT)
    mark = 0
    for row in range(count):
        asked, known, stays = gradient[row], normed[row], to_kept[parents[row]]
        for j in range(2 * half):
            stays[j] += asked[j]
        mean = along = FLOAT(0)
        for j in range(half):
            update = known[j] * weight[j] + bias[j]
            slope = FLOAT(0.5) * (FLOAT(1) + _erf(update * ROOT_HALF)) + update * _density(update)
            own = slope * (asked[j] + asked[half + j]) - asked[half + j]
            to_weight[j] += own * known[j]
            to_bias[j] += own
            own *= weight[j]
            change[j] = own
            mean += own
            along += own * known[j]
        mean /= FLOAT(half)
        along /= FLOAT(half)
        for j in range(half):
            change[j] = (change[j] - mean - known[j] * along) * scales[row]
        if mark < len(marked) and marked[mark] == row:
            to_extra[mark] = change
            mark += 1
        for place in range(starts[row], starts[row + 1]):
            message, factor = to_messages[columns[place]], values[place]
            for j in range(half):
                message[j] += factor * change[j]
    return to_messages, to_kept, to_extra, to_weight, to_bias
