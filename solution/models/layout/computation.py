"""Hold what a net on colours computes: compiled on a CPU, as tensors on any other device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.models.layout.colour_refinement import Colours
from solution.models.layout.compiled_pooling import CompiledPooling
from solution.models.layout.compiled_round import CompiledRound
from solution.models.layout.compiled_steps import derive_steps, find_pooling
from solution.models.layout.steps import NUM_SHARES, Round, Structure
from solution.models.nets.devices import send
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.sparse_rows import select


class Receiving(Protocol):
    """A round of the net without its products with weights."""

    known: Tensor  # (marked, extras) float32: features of the constraints on a colour's tensor

    def prepare_gradient(self) -> None:
        """Prepare what the gradient needs."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return kept of the parent + [GELU(u), GELU(-u)], u = norm(sum of messages + extra).

        Shapes: messages (3 x colours before, half), kept (colours before, 2 x half), extra (marked,
        half) -> (colours after, 2 x half).
        """


class DeviceRound:
    """A round in torch operations."""

    def __init__(self, own: Round, device: torch.device) -> None:
        self.aggregation = SparseMatrix(own.aggregation, device)
        self.marked, self.known = (send(part, device) for part in own.marks)
        before = own.aggregation.num_columns // 3
        self.parents = SparseMatrix(select(own.parents, before), device)

    def prepare_gradient(self) -> None:
        """Transpose both matrices."""
        self.aggregation.prepare_gradient()
        self.parents.prepare_gradient()

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """See Receiving."""
        sums = self.aggregation @ messages
        update = norm(sums.index_add_(0, self.marked, extra.to(sums.dtype)))
        positive = functional.gelu(update)
        both = torch.cat([positive, positive - update], dim=-1)  # GELU(-u) = GELU(u) - u
        return both.add_(self.parents @ kept)


class Pooling(Protocol):
    """Weighted sums over the nodes of each graph, of the colours after the last round."""

    def prepare_gradient(self) -> None:
        """Prepare what the gradient needs."""

    def pool(self, x: Tensor) -> Tensor:
        """Return sums (configs, graphs, NUM_SHARES x width) of x (colours, width)."""


class DevicePooling:
    """The sums as a product with a sparse matrix."""

    def __init__(self, graphs: Sequence[Structure], last: Colours, device: torch.device) -> None:
        self.matrix = SparseMatrix(find_pooling(graphs, last), device)
        self._shape = last.numbers.shape[1], len(graphs)

    def prepare_gradient(self) -> None:
        """Transpose the matrix."""
        self.matrix.prepare_gradient()

    def pool(self, x: Tensor) -> Tensor:
        """See Pooling."""
        configs, graphs = self._shape
        pooled = (self.matrix @ x).view(-1, graphs, NUM_SHARES * x.shape[1])
        usual, differences, others = pooled.split([1, configs, configs])
        return usual + differences + others


@dataclass(frozen=True)
class Computation:
    """All steps of a batch; nodes and (node, layout) pairs of its graphs are numbered
    consecutively."""

    nodes: Tensor  # (colours 0,) int64, the node of each
    configured: Tensor  # (configured,) int64, the colours 0 that have a layout
    pairs: Tensor  # (configured,) int64, their (node, layout) pairs
    rounds: Sequence[Receiving]
    pooling: Pooling

    def prepare_gradients(self) -> None:
        """Prepare what gradients need."""
        for receiving in self.rounds:
            receiving.prepare_gradient()
        self.pooling.prepare_gradient()


def derive_computation(
    graphs: Sequence[Structure], configs: np.ndarray, rounds: int, device: torch.device
) -> Computation:
    """Return the computation for `configs` (configs, graphs), rows of each graph's codes."""
    steps = derive_steps(graphs, configs, rounds)
    return Computation(
        nodes=send(steps.nodes, device),
        configured=send(steps.configured, device),
        pairs=send(steps.pairs, device),
        rounds=[make_round(own, device) for own in steps.rounds],
        pooling=make_pooling(graphs, steps.last, device),
    )


def make_round(own: Round, device: torch.device) -> Receiving:
    """Return one round of message passing: compiled on a CPU, in torch operations elsewhere."""
    return CompiledRound(own) if device.type == "cpu" else DeviceRound(own, device)


def make_pooling(graphs: Sequence[Structure], last: Colours, device: torch.device) -> Pooling:
    """Return the sums: compiled on a CPU, a sparse matrix elsewhere."""
    if device.type == "cpu":
        return CompiledPooling(graphs, last)
    return DevicePooling(graphs, last, device)
