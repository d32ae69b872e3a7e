"""Building blocks of the nets."""

from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from solution.features.states import SparseRows


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
    centred = x - x.mean(dim=0)
    return centred * torch.rsqrt(centred.square().mean(dim=0) + eps)


class SparseMatrix:
    """A constant sparse matrix (rows, columns) to multiply float tensors with, in float32."""

    def __init__(self, rows: SparseRows, device: torch.device) -> None:
        self._rows, self._device = rows, device
        self._forward = _as_bags(rows, device)

    @cached_property
    def _transposed(self) -> "_Bags":
        return _as_bags(self._rows.transposed(), self._device)

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
        x.float(),
        matrix.starts,
        mode="sum",
        per_sample_weights=matrix.values,
        include_last_offset=True,
    )


def _as_bags(rows: SparseRows, device: torch.device) -> _Bags:
    parts = (rows.columns, rows.starts, rows.values)
    return _Bags(*(torch.from_numpy(part).to(device) for part in parts))


class StateBlock(nn.Module):
    """A residual graph convolution on states (solution.features.states).

    x' = S x + [GELU(u), GELU(-u)]
    u = norm(W x + W_operands mean(operands) + W_consumers mean(consumers) + W_e extra + b)

    The products with the weights are taken before the states are spread to more of them, and half
    the outputs are computed: both signs of them are used. S is the identity where the width stays,
    and learned where it changes.

    Shapes: x (states before, inputs), heard (states after, 3 x states before), extra (states after,
    extras), own (states after, states before) -> (states after, outputs).
    Source: GraphSAGE (Hamilton et al., 2017), operands and consumers apart; both signs: CReLU
    (Shang et al., 2016).
    """

    def __init__(self, inputs: int, outputs: int, extras: int) -> None:
        super().__init__()
        self.weights = nn.Linear(inputs, 3 * (outputs // 2), bias=False)
        self.extra = nn.Linear(extras, outputs // 2)
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs // 2)

    def forward(self, x: Tensor, heard: SparseMatrix, extra: Tensor, own: SparseMatrix) -> Tensor:
        messages = self.weights(x).view(3 * len(x), -1)
        update = self.norm(heard @ messages + self.extra(extra))
        positive = functional.gelu(update)
        both = torch.cat([positive, positive - update], dim=-1)  # GELU(-u) = GELU(u) - u
        return both.add_(own @ self.skip(x))
