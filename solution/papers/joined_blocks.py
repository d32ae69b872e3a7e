"""Residual graph convolutions that get the configuration's layouts as input again.

A block reads all nodes, which send messages, and returns the first `count` of them, which receive.
For a segment, these are the segment's nodes; the nodes after them only send.

Shapes: x (nodes, configs, width), layouts (nodes, configs, 18), edge_index (2, edges) from sender
to receiver, scale (nodes,) from `inverse_root_degrees` -> (count, configs, width).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import degree

from solution.domain.vocabulary import NUM_LAYOUT_FEATURES


class JoinedBlock(nn.Module):
    """x' = x + GELU(norm(W [x, layouts] + W_neighbours mean of [x, layouts] over neighbours)).

    Source: GraphSAGE (Hamilton et al., 2017).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = SAGEConv(width + NUM_LAYOUT_FEATURES, width, aggr="mean", node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, layouts: Tensor, edge_index: Tensor, count: int, scale: Tensor
    ) -> Tensor:
        del scale  # a mean needs no degrees
        joined = torch.cat([x, layouts], dim=-1)
        messages = self.convolution((joined, joined[:count]), edge_index)
        return x[:count] + functional.gelu(self.norm(messages))


class JoinedGcnBlock(nn.Module):
    """x' = x + GELU(norm(D^-1/2 (A + I) D^-1/2 [x, layouts] W + b)), D of the whole graph.

    Source: Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
    ICLR 2017.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.product = nn.Linear(width + NUM_LAYOUT_FEATURES, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, layouts: Tensor, edge_index: Tensor, count: int, scale: Tensor
    ) -> Tensor:
        weights = scale[:, None, None]
        sent = self.product(torch.cat([x, layouts], dim=-1)) * weights.to(x.dtype)
        source, target = edge_index
        received = sent[:count].index_add(0, target, sent[source])
        messages = received * weights[:count] + self.bias
        return x[:count] + functional.gelu(self.norm(messages))


JOINED_BLOCKS: dict[str, type[nn.Module]] = {"sage": JoinedBlock, "gcn": JoinedGcnBlock}


def inverse_root_degrees(edges: Tensor, num_nodes: int) -> Tensor:
    """Return (nodes,) 1 / sqrt(number of messages that each node receives, including its own)."""
    return (degree(edges[1], num_nodes) + 1).rsqrt()
