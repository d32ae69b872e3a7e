"""Wrap convolutions of PyTorch Geometric as residual blocks, and join graphs into one.

Blocks take x (nodes, width) or (nodes, configs, width) and edge_index (2, edges), from operand to
consumer, and return the shape of x.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from solution.models.nets.devices import send


def both_ways(edge_index: Tensor) -> Tensor:
    """Return the edges followed by the reversed edges: (2, 2 x edges)."""
    return torch.cat([edge_index, edge_index.flip(0)], dim=1)


class BothWaysBlock(nn.Module):
    """A residual graph convolution with separate weights for operands and consumers.

    x' = x + GELU(norm(W x + W_operands mean(operands) + W_consumers mean(consumers)))

    Shapes: x (nodes, width) or (nodes, configs, width), nodes first because gathering whole rows is
    fast; edge_index (2, edges) from operand to consumer -> as x. Source: GraphSAGE (Hamilton et
    al., 2017).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_operands = SAGEConv(width, width, aggr="mean", node_dim=0)
        self.from_consumers = SAGEConv(width, width, aggr="mean", node_dim=0, root_weight=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        messages = self.from_operands(x, edge_index) + self.from_consumers(x, edge_index.flip(0))
        return x + functional.gelu(self.norm(messages))


class SageBlock(nn.Module):
    """A residual graph convolution with the same weights for operands and consumers (neighbours):
    x' = x + GELU(norm(W x + W_neighbours mean(neighbours))).
    Source: GraphSAGE (Hamilton et al., 2017), the baseline of TpuGraphs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = SAGEConv(width, width, aggr="mean", node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        messages = self.convolution(x, both_ways(edge_index))
        return x + functional.gelu(self.norm(messages))


class GcnBlock(nn.Module):
    """A residual graph convolution with the same weights for operands and consumers:
    x' = x + GELU(norm(D^-1/2 (A + I) D^-1/2 x W + b)), with the adjacency matrix A, and the degrees
    D of A + I. Source: Kipf and Welling, ICLR 2017."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = GCNConv(width, width, node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = both_ways(edge_index)
        edges, weights = gcn_norm(edges, num_nodes=len(x), dtype=x.dtype)
        # the steps of GCNConv, which itself takes no axis of configurations
        sent = self.convolution.lin(x)
        messages = self.convolution.propagate(edges, x=sent.flatten(1), edge_weight=weights)
        messages = messages.view_as(sent) + self.convolution.bias
        return x + functional.gelu(self.norm(messages))


BLOCKS: dict[str, type[nn.Module]] = {
    "both_ways": BothWaysBlock,
    "sage": SageBlock,
    "gcn": GcnBlock,
}


def join_graphs(sizes: Sequence[int], edges: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Join graphs of `sizes` nodes and `edges` (2, edges) into one disconnected graph. Return each
    graph's first node (graphs,), the edges (2, edges), and each node's graph (nodes,)."""
    device = edges[0].device
    counts = torch.tensor(sizes)
    starts = torch.cumsum(counts, 0) - counts
    shifted = [pairs + start for pairs, start in zip(edges, starts.tolist(), strict=True)]
    member = torch.repeat_interleave(torch.arange(len(counts)), counts)
    joined = torch.cat(shifted, dim=1)
    return send(starts.numpy(), device), joined, send(member.numpy(), device)
