"""Multiply sparse matrices with torch tensors in float32; on a CPU, results are reproducible."""

from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from solution.models.nets.devices import send
from solution.models.nets.forward import SparseRows


class SparseMatrix:
    """A constant sparse matrix (rows, columns): `matrix @ x` has a gradient for x only."""

    def __init__(self, rows: SparseRows, device: torch.device) -> None:
        self._rows, self._device = rows, device
        self._forward = _as_bags(rows, device)

    @cached_property
    def _transposed(self) -> "_Bags":
        return _as_bags(self._rows.transposed(), self._device)

    def prepare_gradient(self) -> None:
        """Transpose the matrix now instead of in the backward pass."""
        self._transposed  # noqa: B018 - computed once

    def product(self, x: Tensor) -> Tensor:
        """Return matrix @ x, without recording a gradient."""
        return _multiply(self._forward, x)

    def product_transposed(self, x: Tensor) -> Tensor:
        """Return matrix^T @ x, without recording a gradient."""
        return _multiply(self._transposed, x)

    def __matmul__(self, x: Tensor) -> Tensor:
        return cast("Tensor", _SparseProduct.apply(x, self))


class _SparseProduct(torch.autograd.Function):
    """The operation matrix @ x, with a gradient for x. Forward and backward pass gather rows, never
    scatter them, so that a CPU computes the same bytes each time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix, ctx.dtype = matrix, x.dtype
        return matrix.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.product_transposed(gradients[0].contiguous()).to(ctx.dtype), None


class _Bags(NamedTuple):
    """The rows of a sparse matrix in the format of torch's embedding_bag."""

    columns: Tensor  # (entries,) column of each nonzero entry, row after row
    starts: Tensor  # (rows + 1,) row i has the entries starts[i] : starts[i + 1]
    values: Tensor  # (entries,) value of each nonzero entry


def _multiply(matrix: _Bags, x: Tensor) -> Tensor:
    """Return matrix @ x in float32, which is precise enough for sums over many nodes. On a CPU,
    embedding_bag is several times as fast as torch's CSR matrix product."""
    return functional.embedding_bag(
        matrix.columns,
        # detached: otherwise torch records data for the backward pass, which takes time
        x.detach().float(),
        matrix.starts,
        mode="sum",
        per_sample_weights=matrix.values,
        include_last_offset=True,
    )


def _as_bags(rows: SparseRows, device: torch.device) -> _Bags:
    parts = (rows.columns, rows.starts, rows.values)
    return _Bags(*(send(part, device) for part in parts))
