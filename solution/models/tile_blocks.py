"""What tile nets are built of beside the layers that all nets share.

Convolutions take nodes first: x (nodes, width) or (nodes, configs, width), edge_index (2, edges)
from operand to consumer -> as x.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from solution.models.layers import BothWaysBlock, Mlp, both_ways


class SageBlock(nn.Module):
    """x' = x + GELU(norm(W x + W_neighbours mean(neighbours))), operands and consumers alike.

    Source: GraphSAGE (Hamilton et al., 2017), the baseline of TpuGraphs.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = SAGEConv(width, width, aggr="mean", node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heard = self.convolution(x, both_ways(edge_index))
        return x + functional.gelu(self.norm(heard))


class GcnBlock(nn.Module):
    """x' = x + GELU(norm(D^-1/2 (A + I) D^-1/2 x W)), operands and consumers alike.

    Source: Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
    ICLR 2017.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = GCNConv(width, width, node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = both_ways(edge_index)
        edges, weights = gcn_norm(edges, num_nodes=len(x), dtype=x.dtype)
        # GCNConv itself weighs edges of (nodes, width) only.
        sent = self.convolution.lin(x)
        heard = self.convolution.propagate(edges, x=sent.flatten(1), edge_weight=weights)
        heard = heard.view_as(sent) + self.convolution.bias
        return x + functional.gelu(self.norm(heard))


BLOCKS: dict[str, type[nn.Module]] = {
    "both_ways": BothWaysBlock,
    "sage": SageBlock,
    "gcn": GcnBlock,
}


def join_graphs(sizes: Sequence[int], edges: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Graphs of `sizes` nodes as one: first nodes (graphs,), edges (2, edges), graph (nodes,)."""
    device = edges[0].device
    counts = torch.tensor(sizes)
    starts = torch.cumsum(counts, 0) - counts
    shifted = [own + start for own, start in zip(edges, starts.tolist(), strict=True)]
    member = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return starts.to(device), torch.cat(shifted, dim=1), member.to(device)


class DimensionTokens(nn.Module):
    """A loop of the kernel is a token: how long it is, how it is cut, what kind it is.

    sum over loops of gate(token) * value(token), so that all dimensions share what is learned of
    one, and a dimension that does not go round counts nothing.

    Shapes: tokens (..., loops, features), active (..., loops) -> (..., width).
    Source: after the per-dimension encoding of tiles in the learned TPU cost model of Kaufman et
    al., MLSys 2021.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.value = Mlp(features, width, width)
        self.gate = nn.Linear(features, width)

    def forward(self, tokens: Tensor, active: Tensor) -> Tensor:
        gated = torch.sigmoid(self.gate(tokens)) * self.value(tokens)
        return (gated * active.unsqueeze(-1)).sum(dim=-2)
