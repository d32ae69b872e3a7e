"""The layers of the residual net, for layouts and tiles.

Each is the report's formula, with Â = D^-1/2 (A + I) D^-1/2 of edges in both directions:

    attention  x' = softmax(x x^T) x                      queries, keys and values are x itself
    layer      x' = x + LeakyReLU(Â MLP([x, configuration]))
    MLP        W2 LeakyReLU(W1 x + b1) + b2

The report's residual connections "append input features to each layer's output". Here they are
added, as in the code of TpuGraphs that it says it repurposed, so the width is constant. As in that
code, each layer gets the configuration as input again. The slope of LeakyReLU is TensorFlow's.

Source: a student report on the competition (rank 239 of 616), sections 3.1 and 3.2.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.models.nets.convolutions import both_ways
from solution.models.nets.devices import send
from solution.models.nets.layers import attend

SLOPE = 0.2


def leaky_relu(x: Tensor) -> Tensor:
    """Return x if it is positive, else x / 5."""
    return functional.leaky_relu(x, SLOPE)


class LeakyMlp(nn.Sequential):
    """Linear, LeakyReLU, Linear, with biases: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, outputs))


class ResidualLayer(nn.Module):
    """A residual layer: an MLP on each node, message passing, LeakyReLU.

    Shapes: x (nodes, configs, width), told (nodes, configs, k) of the configuration, edges (2, e)
    from sender to receiver, weights (e,) -> as x.
    """

    def __init__(self, width: int, told: int) -> None:
        super().__init__()
        self.mlp = LeakyMlp(width + told, width, width)

    def forward(self, x: Tensor, told: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        sent = self.mlp(torch.cat([x, told], dim=-1))
        source, target = edges
        messages = sent[source] * weights[:, None, None].to(sent.dtype)
        received = torch.zeros_like(sent).index_add(0, target, messages)
        return x + leaky_relu(received)


class ResidualBody(nn.Module):
    """Optional attention, then the residual layers.

    Shapes: x (nodes, configs, width), told (nodes, configs, k), edge_index (2, edges) -> as x.
    """

    def __init__(self, width: int, told: int, rounds: int, *, attention: bool) -> None:
        super().__init__()
        self.attention = attention
        self.layers = nn.ModuleList(ResidualLayer(width, told) for _ in range(rounds))

    def forward(self, x: Tensor, told: Tensor, edge_index: Tensor) -> Tensor:
        if self.attention:
            x = attend_to_itself(x)
        edges, weights = normalise_edges(both_ways(edge_index), len(x))
        for layer in self.layers:
            x = layer(x, told, edges, weights)
        return x


def normalise_edges(edges: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the entries of Â = D^-1/2 (A + I) D^-1/2: indices (2, edges + nodes), and weights.

    Like torch_geometric's gcn_norm, but without its search for self-loops, which synchronises with
    a GPU.
    """
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    source, target = places = torch.cat([edges, loops], dim=1)
    counts = torch.ones(places.shape[1], device=edges.device)
    counts[: edges.shape[1]] = (edges[0] != edges[1]).float()  # a self-loop counts once
    degree = counts.new_zeros(num_nodes).index_add(0, target, counts)
    return places, counts * degree[source].rsqrt() * degree[target].rsqrt()


def attend_to_itself(x: Tensor) -> Tensor:
    """Return softmax(x x^T) x in each configuration: attention without projections or scale.

    Same as Keras' `Attention()([x, x])`. Shapes: x (nodes, configs, width) -> as x.
    """
    rows = x.transpose(0, 1)
    return attend(rows, rows, rows, scale=1.0).transpose(0, 1)


def drop_edges(edges: Tensor, share: float) -> Tensor:
    """Return a random `share` of the edges (2, edges), rounded, in the original order."""
    kept = torch.randperm(edges.shape[1])[: round(share * edges.shape[1])]
    return edges[:, send(kept.sort().values.numpy(), edges.device)]


def penalise(net: nn.Module, pooled: Tensor) -> Tensor:
    """Return the L2 term of weight 1: squares of all MLP weights, and of the pooled activations.

    Biases do not count. Pooling has no weights, so its output is penalised, like Keras' activity
    regulariser: the squares, averaged over graphs and configurations.

    Shapes: pooled (configs, graphs, width) -> ().
    """
    products = [module for module in net.modules() if isinstance(module, nn.Linear)]
    weights = torch.stack([product.weight.square().sum() for product in products]).sum()
    return weights + pooled.float().square().sum(dim=-1).mean()
