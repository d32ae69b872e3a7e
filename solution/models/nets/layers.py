"""Define layers that several nets share: MLPs, self-attention, and standardisation."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

MAX_PAIRS = 1 << 24  # maximum number of (query, key) pairs in memory at once: 64 MB in float32


class Mlp(nn.Sequential):
    """An MLP of the layers Linear, GELU, Linear: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class NodeMlp(nn.ModuleList):
    """An MLP (Linear, GELU, Linear) on each node's row of `table` (an embedding) concatenated with
    the node's features. The table is multiplied by the first weights once, not once for each
    node.

    Shapes: table (entries, inputs - features), entry (nodes,) int64 the row of each node, features
    (nodes, features) -> (nodes, outputs).
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        # name the parameters as in an Mlp (0.weight), because numpy nets and ONNX read them so
        super().__init__(Mlp(inputs, hidden, outputs))

    def forward(self, table: Tensor, entry: Tensor, features: Tensor) -> Tensor:
        first, activation, last = self
        assert isinstance(first, nn.Linear)
        by_entry, by_feature = first.weight.split([table.shape[1], features.shape[1]], dim=1)
        x = functional.embedding(entry, functional.linear(table, by_entry))
        x = x + functional.linear(features, by_feature, first.bias)
        return cast("Tensor", last(activation(x)))


class SelfAttention(nn.Module):
    """Self-attention among the rows of each list: x' = x + W attention(norm(x)), x (rows, lists,
    width). `head_width`: by default width // heads. Source: Vaswani et al., "Attention is all you
    need", NeurIPS 2017."""

    def __init__(self, width: int, heads: int, head_width: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        attended = heads * (width // heads if head_width is None else head_width)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * attended)
        self.out = nn.Linear(attended, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, lists, _ = x.shape
        # (lists, heads, rows, head width) each
        query, key, value = (
            part.reshape(rows, lists, self.heads, -1).permute(1, 2, 0, 3)
            for part in self.project(self.norm(x)).chunk(3, dim=-1)
        )
        found = attend(query, key, value)
        return x + self.out(found.permute(2, 0, 1, 3).reshape(rows, lists, -1))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    max_pairs: int = MAX_PAIRS,
) -> Tensor:
    """Return softmax(scale * query key^T) value exactly, one block of queries (at most `max_pairs`
    pairs, or one query) at a time, to bound memory. `scale`: by default 1 / sqrt(k).

    Shapes: query, key (..., rows, k), value (..., rows, m) -> (..., rows, m).
    """
    rows = query.shape[-2]
    step = max(1, max_pairs // max(1, query[..., 0].numel()))
    blocks = [
        functional.scaled_dot_product_attention(
            query[..., first : first + step, :], key, value, scale=scale
        )
        for first in range(0, rows, step)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-2)


def standardise(x: Tensor, eps: float = 1e-4, listed: Tensor | None = None) -> Tensor:
    """Standardise x (nodes or configs, ...) over the first axis, by mean and deviation of the rows
    `listed` (bool; None: all). Like attention, this compares all rows with each other, but in time
    linear in their number, so all candidates can be compared at once. Source: Ulyanov et al.,
    2016."""
    centred = x - (x if listed is None else x[listed]).mean(dim=0)
    return centred * slope(centred if listed is None else centred[listed], eps)


def slope(centred: Tensor, eps: float = 1e-4) -> Tensor:
    """Return 1 / standard deviation over the first axis, along which `centred` has mean 0."""
    return torch.rsqrt(centred.square().mean(dim=0) + eps)
