"""Sum the values of colours over the nodes of each graph, compiled for a CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from solution.domain.neighbours import starts_of
from solution.models.layout.colour_refinement import Colours
from solution.models.layout.compiled_round import FAST, FLOAT
from solution.models.layout.steps import NUM_SHARES, Structure, list_shares


class CompiledPooling:
    """Compute what solution.models.layout.computation.DevicePooling does, without a matrix.

    Args:
        colours: the colours after the last round.
    """

    def __init__(self, graphs: Sequence[Structure], colours: Colours) -> None:
        firsts = starts_of(np.bincount(colours.nodes, minlength=len(colours.numbers)))
        self._num_rows, self._num_colours = len(graphs) * NUM_SHARES, len(colours.nodes)
        self._entries = (colours.numbers, firsts, *list_shares(graphs))

    def prepare_gradient(self) -> None:
        """Do nothing: the gradient needs no preparation."""

    def pool(self, x: Tensor) -> Tensor:
        """Sum as DevicePooling.pool does, in float32.

        Raises ValueError unless x has one row for each colour.
        """
        if len(x) != self._num_colours:
            raise ValueError(f"sums were asked of {len(x)} colours, expected {self._num_colours}")
        sums: Tensor = _Pool.apply(x.float(), self._num_rows, self._entries)
        return sums.transpose(0, 1).reshape(sums.shape[1], -1, NUM_SHARES * x.shape[1])


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, num_rows, ctx.entries = given
        return torch.from_numpy(_sum(x.detach().contiguous().numpy(), num_rows, *ctx.entries))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradients[0].contiguous().numpy()
        return torch.from_numpy(_hand_back(gradient, *ctx.entries)), None, None


@njit(**FAST)
def _sum(x, num_rows, numbers, firsts, nodes, rows, weights):
    """Return sums (rows, configs, width) of x (colours, width).

    A node's first colour is added for all configurations at once, then each configuration's
    difference to it. What all configurations share is so rounded alike in all of them.
    """
    num_configs, width = numbers.shape[1], x.shape[1]
    sums = np.zeros((num_rows, num_configs, width), FLOAT)
    common = np.zeros((num_rows, width), FLOAT)
    changes = np.empty((num_configs, width), FLOAT)  # differences between a node's colours
    for entry in range(len(nodes)):
        node, row, weight = nodes[entry], rows[entry], weights[entry]
        first, end = firsts[node], firsts[node + 1]
        for j in range(width):
            common[row, j] += weight * x[first, j]
        if end == first + 1:
            continue
        for colour in range(first, end):
            for j in range(width):
                changes[colour - first, j] = weight * (x[colour, j] - x[first, j])
        for config in range(num_configs):
            place = numbers[node, config] - first
            for j in range(width):
                sums[row, config, j] += changes[place, j]
    for row in range(num_rows):
        for config in range(num_configs):
            for j in range(width):
                sums[row, config, j] += common[row, j]
    return sums


@njit(**FAST)
def _hand_back(gradient, numbers, firsts, nodes, rows, weights):
    """Return the gradient of x (colours, width) from the gradient of the sums."""
    num_configs, width = numbers.shape[1], gradient.shape[2]
    to_x = np.zeros((firsts[-1], width), FLOAT)
    every = gradient.sum(axis=1)
    for entry in range(len(nodes)):
        node, row, weight = nodes[entry], rows[entry], weights[entry]
        first, end = firsts[node], firsts[node + 1]
        if end == first + 1:
            for j in range(width):
                to_x[first, j] += weight * every[row, j]
            continue
        for config in range(num_configs):
            colour = numbers[node, config]
            for j in range(width):
                to_x[colour, j] += weight * gradient[row, config, j]
    return to_x
