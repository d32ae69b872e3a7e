"""What a net on colours has to compute: compiled for a CPU, as tensors on any other device."""

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
    """A round of the net, but for its products with weights."""

    known: Tensor  # (marked, extras) float32 what some colours know of the constraints on them

    def prepare_gradient(self) -> None:
        """Do now what a gradient needs."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """kept of each colour's parent + [GELU(u), GELU(-u)], u = norm(sum of messages + extra).

        Shapes: messages (3 x colours before, half), kept (colours before, 2 x half), extra (marked,
        half) -> (colours after, 2 x half).
        """


class DeviceRound:
    """A round in torch's operations."""

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
    """The sums over the nodes of each graph, of their last colours."""

    def prepare_gradient(self) -> None:
        """Do now what a gradient needs."""

    def pool(self, x: Tensor) -> Tensor:
        """Sums (configs, graphs, NUM_SHARES x width) of x (colours, width)."""


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
    """The nodes of the graphs, and their (node, layout) pairs, are numbered one after the other."""

    nodes: Tensor  # (colours 0,) int64 the node of each
    configured: Tensor  # (configured,) int64 those colours 0 that have a layout
    pairs: Tensor  # (configured,) int64 their (node, layout) pair
    rounds: Sequence[Receiving]
    pooling: Pooling

    def prepare_gradients(self) -> None:
        """Do now what gradients need."""
        for receiving in self.rounds:
            receiving.prepare_gradient()
        self.pooling.prepare_gradient()


def derive_computation(
    graphs: Sequence[Structure], configs: np.ndarray, rounds: int, device: torch.device
) -> Computation:
    """What the net computes for `configs` (configs, graphs), rows of the codes of each graph."""
    steps = derive_steps(graphs, configs, rounds)
    return Computation(
        nodes=send(steps.nodes, device),
        configured=send(steps.configured, device),
        pairs=send(steps.pairs, device),
        rounds=[make_round(own, device) for own in steps.rounds],
        pooling=make_pooling(graphs, steps.last, device),
    )


def make_round(own: Round, device: torch.device) -> Receiving:
    """A round: compiled for a CPU, in torch's operations elsewhere."""
    return CompiledRound(own) if device.type == "cpu" else DeviceRound(own, device)


def make_pooling(graphs: Sequence[Structure], last: Colours, device: torch.device) -> Pooling:
    """The sums: compiled for a CPU, a matrix elsewhere."""
    if device.type == "cpu":
        return CompiledPooling(graphs, last)
    return DevicePooling(graphs, last, device)
