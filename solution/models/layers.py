"""Building blocks of the nets."""

import warnings
from functools import cached_property
from typing import Any, cast

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv


class Mlp(nn.Sequential):
    """Linear, GELU, Linear: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def both_ways(edge_index: Tensor) -> Tensor:
    """The edges (2, 2 x edges) and the same ones turned round."""
    return torch.cat([edge_index, edge_index.flip(0)], dim=1)


class BothWaysBlock(nn.Module):
    """A residual graph convolution that hears operands and consumers apart.

    x' = x + GELU(norm(W x + W_operands mean(operands) + W_consumers mean(consumers)))

    Nodes come first: gathering whole rows (configs, width) is twice as fast as gathering inside
    each configuration.

    Shapes: x (nodes, width) or (nodes, configs, width), edge_index (2, edges) from operand to
    consumer -> as x.
    Source: GraphSAGE (Hamilton et al., 2017).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_operands = SAGEConv(width, width, aggr="mean", node_dim=0)
        self.from_consumers = SAGEConv(width, width, aggr="mean", node_dim=0, root_weight=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heard = self.from_operands(x, edge_index) + self.from_consumers(x, edge_index.flip(0))
        return x + functional.gelu(self.norm(heard))


class SelfAttention(nn.Module):
    """Attention among the rows of the first axis, for each of the second axis alone.

    x' = x + W attention(norm(x)), with `bias` added to the logits of each pair of rows

    Shapes: x (rows, lists, width), bias (rows, rows) -> as x. In any order of the rows the results
    are the same; with other rows they are not.
    Source: Vaswani et al., "Attention is all you need", NeurIPS 2017.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        rows, lists, width = x.shape
        shape = (rows, lists, self.heads, width // self.heads)
        query, key, value = (
            part.reshape(shape).permute(1, 2, 0, 3)  # (lists, heads, rows, width / heads)
            for part in self.project(self.norm(x)).chunk(3, dim=-1)
        )
        if bias is not None:
            bias = bias.to(query.dtype)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return x + self.out(found.permute(2, 0, 1, 3).reshape(rows, lists, width))


def standardise(x: Tensor, eps: float = 1e-4) -> Tensor:
    """Each value less its mean over the first axis, over its deviation there.

    Over the configurations of a graph it leaves what tells them apart, in units of how far apart
    they are; unlike attention among those of a step, it can be had of all candidates at once.

    Shapes: (nodes or configs, ...) -> the same.
    Source: instance normalisation (Ulyanov et al., 2016).
    """
    return (x - x.mean(dim=0)) * torch.rsqrt(x.var(dim=0, unbiased=False) + eps)


class SparseMatrix:
    """A constant sparse matrix (rows, columns) to multiply float tensors with, in float32."""

    def __init__(self, matrix: csr_array, device: torch.device) -> None:
        self._matrix, self._device = matrix, device
        self._forward = _as_tensor(matrix, device)

    @cached_property
    def _transposed(self) -> Tensor:
        return _as_tensor(csr_array(self._matrix.T), self._device)

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


def _multiply(matrix: Tensor, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):  # sums over nodes need float32
        return matrix @ x.float()


def _as_tensor(matrix: csr_array, device: torch.device) -> Tensor:
    starts, columns, values = (
        torch.from_numpy(part).to(device) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    with warnings.catch_warnings():  # that sparse tensors may change
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(starts, columns, values, matrix.shape)


class StateBlock(nn.Module):
    """A residual graph convolution on states (solution.features.states).

    x' = S x + GELU(norm(W x + W_operands mean(operands) + W_consumers mean(consumers) + W_e extra))

    The products with the weights are taken before the states are spread to more of them. S is the
    identity where the width stays, and learned where it changes.

    Shapes: x (states before, inputs), heard (states after, 3 x states before + extras), own (states
    after, states before) -> (states after, outputs).
    Source: GraphSAGE (Hamilton et al., 2017), operands and consumers apart.
    """

    def __init__(self, inputs: int, outputs: int, extras: int) -> None:
        super().__init__()
        self.weights = nn.Linear(inputs, 3 * outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.extras = nn.Parameter(torch.randn(extras, outputs) / outputs**0.5)
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor, heard: SparseMatrix, own: SparseMatrix) -> Tensor:
        messages = torch.cat([self.weights(x).view(3 * len(x), -1), self.extras])
        update = heard @ messages + self.bias
        return own @ self.skip(x) + functional.gelu(self.norm(update))
