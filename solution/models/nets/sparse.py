"""Multiply with sparse matrices in float32, so that equal inputs give equal bytes."""

from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from solution.models.nets.devices import send
from solution.models.nets.sparse_rows import SparseRows


class SparseMatrix:
    """A constant sparse matrix (rows, columns) that multiplies float tensors, in float32."""

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
        """Return the product, without a gradient."""
        return _multiply(self._forward, x)

    def product_transposed(self, x: Tensor) -> Tensor:
        """Return the product of the transposed matrix."""
        return _multiply(self._transposed, x)

    def __matmul__(self, x: Tensor) -> Tensor:
        return cast("Tensor", _SparseProduct.apply(x, self))


class _SparseProduct(torch.autograd.Function):
    """matrix @ x with a gradient. Both passes gather rows: on a CPU, equal inputs give equal
    bytes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix, ctx.dtype = matrix, x.dtype
        return matrix.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.product_transposed(gradients[0].contiguous()).to(ctx.dtype), None


class _Bags(NamedTuple):
    """The rows of a sparse matrix in the format of torch's embedding_bag."""

    columns: Tensor  # (values,)
    starts: Tensor  # (rows + 1,)
    values: Tensor  # (values,)


def _multiply(matrix: _Bags, x: Tensor) -> Tensor:
    """Return the product in float32, which sums over many nodes need.

    embedding_bag computes the same sums as a product in torch's CSR format, several times as fast
    on a CPU.
    """
    return functional.embedding_bag(
        matrix.columns,
        x.detach().float(),  # otherwise torch records data for a gradient, which takes time
        matrix.starts,
        mode="sum",
        per_sample_weights=matrix.values,
        include_last_offset=True,
    )


def _as_bags(rows: SparseRows, device: torch.device) -> _Bags:
    parts = (rows.columns, rows.starts, rows.values)
    return _Bags(*(send(part, device) for part in parts))
