"""What a net on colours has to compute, as tensors on its device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from solution.models.layout.compiled_steps import derive_steps
from solution.models.layout.steps import Structure
from solution.models.nets.devices import send
from solution.models.nets.sparse import SparseMatrix


class Known(NamedTuple):
    """Marks on a device."""

    colours: Tensor  # (marked,) int64
    values: Tensor  # (marked, extras) float32


@dataclass(frozen=True)
class Computation:
    """The nodes of the graphs, and their (node, layout) pairs, are numbered one after the other."""

    nodes: Tensor  # (colours 0,) int64 the node of each
    configured: Tensor  # (configured,) int64 those colours 0 that have a layout
    pairs: Tensor  # (configured,) int64 their (node, layout) pair
    rounds: list[tuple[SparseMatrix, Known, SparseMatrix]]  # what ColourBlock takes
    pooling: SparseMatrix  # ((1 + 2 x configs) x graphs x NUM_SHARES, colours): see Steps

    def prepare_gradients(self) -> None:
        """Transpose now what is transposed for gradients else."""
        for aggregation, _, parents in self.rounds:
            aggregation.prepare_gradient()
            parents.prepare_gradient()
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
        rounds=[
            (
                SparseMatrix(aggregation, device),
                Known(*(send(part, device) for part in marks)),
                SparseMatrix(parents, device),
            )
            for aggregation, marks, parents in steps.rounds
        ],
        pooling=SparseMatrix(steps.pooling, device),
    )
