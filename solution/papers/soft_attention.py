"""A student report's block of multi-head attention among all nodes of a graph.

    nodes ─▶ times the soft adjacency mask ─▶ attention among all nodes ─▶ MLP on each node ─▶

The report multiplies the node matrix by an adjacency mask before the net. With attention, the mask
has 0.1 instead of 0 for nodes that are not adjacent, "to consider all nodes in the sampled
graph". Here each row of the mask is divided by its sum, so that the result is a mean for any
number of nodes. The report's "standard multi-head attention blocks" are transformer blocks here,
with a norm before attention and before the MLP.

Source: a student report on the competition (rank 107 of 616), sections 4 and 5.1; 16 heads of 32.
"""

import torch
from torch import Tensor, nn

from solution.models.nets.convolutions import both_ways
from solution.models.nets.layers import Mlp, SelfAttention

NOT_ADJACENT = 0.1  # weight in the mask of nodes that are not adjacent


class SoftAttention(nn.Module):
    """A block of the soft adjacency mask, attention among all nodes, and an MLP on each node.
    `mask`: weight of nodes that are not adjacent; None: no mask. Shapes: x (nodes, configs, width),
    edge_index (2, edges) in either direction -> as x."""

    def __init__(self, width: int, heads: int, head_width: int, mask: float | None) -> None:
        super().__init__()
        self.mask = mask
        self.attention = SelfAttention(width, heads, head_width)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, 2 * width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.mask is not None:
            x = apply_mask(x, edge_index, self.mask)
        x = self.attention(x)
        return x + self.mlp(self.norm(x))


def apply_mask(x: Tensor, edge_index: Tensor, others: float) -> Tensor:
    """Return weighted means over all nodes: weight 1 for a node and its neighbours, else `others`.
    The mask matrix is never built, so the time is linear in nodes and edges.

    Shapes: x (nodes, ..., width), edge_index (2, edges) in either direction -> as x.
    """
    # mean = (others * sum of all + (1 - others) * sum of node and neighbours) / sum of weights
    edges = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = torch.unique(both_ways(edges), dim=1)  # parallel edges count once
    full = x.float()  # in float32: a sum of ones in bfloat16 stays at 256
    near = full.index_add(0, target, full[source])
    counts = full.new_ones(len(x)).index_add(0, target, full.new_ones(len(target)))
    weights = others * len(x) + (1 - others) * counts
    total = others * full.sum(dim=0) + (1 - others) * near
    return (total / weights.view(-1, *[1] * (x.dim() - 1))).to(x.dtype)
