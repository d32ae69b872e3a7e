"""Building blocks of the nets."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Sequential):
    """Linear, GELU, Linear: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


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


def standardise(x: Tensor, eps: float = 1e-4, listed: Tensor | None = None) -> Tensor:
    """Each value less its mean over the first axis, over its deviation there.

    Over the configurations of a graph it leaves what tells them apart, in units of how far apart
    they are; unlike attention among those of a step, it can be had of all candidates at once.

    Shapes: (nodes or configs, ...) -> the same; listed (nodes or configs,) bool: those whose mean
    and deviation are taken, by default all.
    Source: instance normalisation (Ulyanov et al., 2016).
    """
    centred = x - (x if listed is None else x[listed]).mean(dim=0)
    own = centred if listed is None else centred[listed]
    return centred * torch.rsqrt(own.square().mean(dim=0) + eps)
