"""A block of multi-head attention among all nodes of a graph, of a student report.

    nodes ─▶ times the soft adjacency mask ─▶ attention among all nodes ─▶ MLP on each node ─▶

The report multiplies the node matrix by an adjacency mask before the net; where there is attention,
nodes that are not adjacent have 0.1 in it instead of 0, "to consider all nodes in the sampled
graph". Here each row of the mask is divided by its sum, so that the product is a mean however many
nodes there are. "Standard multi-head attention blocks" are those of the transformer, normed first.

Source: a student report on the competition (rank 107 of 616), sections 4 and 5.1; 16 heads of 32.
"""

import torch
from torch import Tensor, nn

from solution.models.nets.convolutions import both_ways
from solution.models.nets.layers import Mlp, SelfAttention

NOT_ADJACENT = 0.1


class SoftAttention(nn.Module):
    """The mask, attention among all nodes, and an MLP on each.

    Shapes: x (nodes, configs, width), edge_index (2, edges) in either direction -> as x.

    Args:
        mask: what a node that is not adjacent weighs; None: no mask.
    """

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
    """Means over all nodes: the node itself and adjacent ones weigh 1, all others `others`.

    Linear in nodes and edges, as the mask is never made: it is `others` everywhere and 1 - others
    more at a few places.

    Shapes: x (nodes, ..., width), edge_index (2, edges) in either direction -> as x.
    """
    edges = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = torch.unique(
        both_ways(edges), dim=1
    )  # one that is read twice is adjacent once
    near = x.index_add(0, target, x[source])
    counts = x.new_ones(len(x)).index_add(0, target, x.new_ones(len(target)))
    weights = others * len(x) + (1 - others) * counts
    total = others * x.sum(dim=0) + (1 - others) * near
    return total / weights.view(-1, *[1] * (x.dim() - 1))
