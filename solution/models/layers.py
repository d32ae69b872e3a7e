"""Building blocks of the nets."""

from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv


class Mlp(nn.Sequential):
    """Linear, GELU, Linear: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


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
