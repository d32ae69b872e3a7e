"""What tile nets are built of beside the layers that all nets share.

Convolutions take nodes first: x (nodes, width) or (nodes, configs, width), edge_index (2, edges)
from operand to consumer -> as x.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv

from solution.models.layers import BothWaysBlock, Mlp


class SageBlock(nn.Module):
    """x' = x + GELU(norm(W x + W_neighbours mean(neighbours))), operands and consumers alike.

    Source: GraphSAGE (Hamilton et al., 2017), the baseline of TpuGraphs.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = SAGEConv(width, width, aggr="mean", node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        heard = self.convolution(x, torch.cat([edge_index, edge_index.flip(0)], dim=1))
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
        heard = self.convolution(x, torch.cat([edge_index, edge_index.flip(0)], dim=1))
        return x + functional.gelu(self.norm(heard))


BLOCKS: dict[str, type[nn.Module]] = {
    "both_ways": BothWaysBlock,
    "sage": SageBlock,
    "gcn": GcnBlock,
}


class AcrossConfigs(nn.Module):
    """Attention among the configurations of a graph: each is seen beside its rivals.

    x' = x + W attention(norm(x))

    Shapes: (configs, graphs, width) -> the same. In any order of the configurations the scores are
    the same; with other rivals they are not.
    Source: the cross-configuration attention of the competition's 2nd place (Cao et al., 2023).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        configs, graphs, width = x.shape
        shape = (configs, graphs, self.heads, width // self.heads)
        query, key, value = (
            part.reshape(shape).permute(1, 2, 0, 3)  # (graphs, heads, configs, width / heads)
            for part in self.project(self.norm(x)).chunk(3, dim=-1)
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(found.permute(2, 0, 1, 3).reshape(configs, graphs, width))


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
