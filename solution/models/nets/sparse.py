"""Sparse matrices that nets multiply with: by rows, in float32, equal inputs giving equal bytes."""

from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from solution.models.nets.devices import send
from solution.models.nets.sparse_rows import SparseRows


class SparseMatrix:
    """A constant sparse matrix (rows, columns) to multiply float tensors with, in float32."""

    def __init__(self, rows: SparseRows, device: torch.device) -> None:
        self._rows, self._device = rows, device
        self._forward = _as_bags(rows, device)

    @cached_property
    def _transposed(self) -> "_Bags":
        return _as_bags(self._rows.transposed(), self._device)

    def prepare_gradient(self) -> None:
        """Transpose it now, not when a gradient is asked for."""
        self._transposed  # noqa: B018 - computed once

    def product(self, x: Tensor) -> Tensor:
        """The product, of which autograd knows nothing."""
        return _multiply(self._forward, x)

    def product_transposed(self, x: Tensor) -> Tensor:
        """The product of the transposed matrix."""
        return _multiply(self._transposed, x)

    def __matmul__(self, x: Tensor) -> Tensor:
        return cast("Tensor", _SparseProduct.apply(x, self))


class _SparseProduct(torch.autograd.Function):
    """matrix @ x. Both ways it gathers rows: on a CPU, equal inputs give equal bytes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix, ctx.dtype = matrix, x.dtype
        return matrix.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.matrix.product_transposed(gradients[0].contiguous()).to(ctx.dtype), None


class _Bags(NamedTuple):
    """The rows of a sparse matrix as torch's embedding_bag takes them."""

    columns: Tensor  # (values,)
    starts: Tensor  # (rows + 1,)
    values: Tensor  # (values,)


def _multiply(matrix: _Bags, x: Tensor) -> Tensor:
    """The product in float32, as sums over many nodes need it.

    embedding_bag sums the same rows as a product in torch's CSR format, on a CPU several times as
    fast.
    """
    return functional.embedding_bag(
        matrix.columns,
        x.detach().float(),  # else torch keeps what only its own gradient needs, and is slower
        matrix.starts,
        mode="sum",
        per_sample_weights=matrix.values,
        include_last_offset=True,
    )


def _as_bags(rows: SparseRows, device: torch.device) -> _Bags:
    parts = (rows.columns, rows.starts, rows.values)
    return _Bags(*(send(part, device) for part in parts))
