"""A student report's residual graph nets, with self-attention before their convolutions.

    node features, opcode, layouts ─▶ MLP ─▶ attention ─▶ residual layers ─▶ mean ─▶ MLP ─▶ score
                           layouts ────────────────────────▲ ▲

In training, only some nodes of a graph are used, and a random share of the edges between them,
drawn anew at each step: the report calls this segment dropout. Predictions use all nodes and edges.
The net learns from at most 20 configurations per graph.

Source: a student report on the competition (rank 239 of 616): the layers
(sections 3.1 and 3.2), ListMLE, Adam without extras, L2 on the MLPs and the pooling,
average pooling, 100 nodes, 10 to 100 graphs a step, 1 to 6 epochs, early stopping after 2 to 4
epochs, by ordered pairs. The report does not give the share of edges, the width and the weight of
L2. Here they are 0.8, 64, and 1e-4; the last is from the code that the report repurposed.

Each layer is the report's formula, with Â = D^-1/2 (A + I) D^-1/2 of edges in both directions:

    attention  x' = softmax(x x^T) x                      queries, keys and values are x itself
    layer      x' = x + LeakyReLU(Â MLP([x, configuration]))
    MLP        W2 LeakyReLU(W1 x + b1) + b2

The report's residual connections "append input features to each layer's output". Here input
features are added to the output, so the width is constant. The code of TpuGraphs, which the report
says it repurposed, adds them as well. As in that code, each layer gets the configuration as input
again. The slope of LeakyReLU is TensorFlow's.

The net for tiles has the same layers, on the nodes of a kernel; the report's net is "tailored for
the layout and tiles dataset".

    node features, opcode, 24 numbers ─▶ MLP ─▶ attention ─▶ residual layers ─▶ mean ─▶ MLP ─▶ score
                           24 numbers ────────────────────────▲ ▲

The 24 numbers of a tile configuration are inputs of every node, while a layout is an input of its
configurable node only. Kernels have few nodes, so training drops only edges of kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import NUM_NUMERIC
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import both_ways
from solution.models.nets.devices import send
from solution.models.nets.layers import attend
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.papers import node_subsets
from solution.papers.tpugraphs import NUM_CONFIG, KernelInputs, prepare_kernel

SLOPE = 0.2  # LeakyReLU's slope for negative inputs
TRAINING = TrainingSettings(
    loss="list_mle",
    optimizer="adam",
    epochs=6,
    patience=4,
    chosen_by="opa",
    graphs_per_step=10,
    configs_per_graph=20,
    max_configs=20,
)


def leaky_relu(x: Tensor) -> Tensor:
    """Return x if it is positive, else x / 5."""
    return functional.leaky_relu(x, SLOPE)


class LeakyMlp(nn.Sequential):
    """Linear, LeakyReLU, Linear, with biases: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, outputs))


class ResidualLayer(nn.Module):
    """A residual layer: an MLP on each node, message passing, LeakyReLU. Shapes: x (nodes, configs,
    width), told (nodes, configs, k): the configuration's inputs of each node, edges (2, e) from
    sender to receiver, weights (e,) of the edges -> as x."""

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
    """Optional attention, then the residual layers. Shapes: x (nodes, configs, width), told (nodes,
    configs, k) as in ResidualLayer, edge_index (2, edges) in either direction -> as x."""

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
    Unlike gcn_norm, it never makes the CPU wait for a GPU."""
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    source, target = indices = torch.cat([edges, loops], dim=1)
    counts = torch.ones(indices.shape[1], device=edges.device)
    # a self-loop of `edges` gets the weight 0, because `loops` has a self-loop for every node
    counts[: edges.shape[1]] = (edges[0] != edges[1]).float()
    degree = counts.new_zeros(num_nodes).index_add(0, target, counts)
    return indices, counts * degree[source].rsqrt() * degree[target].rsqrt()


def attend_to_itself(x: Tensor) -> Tensor:
    """Return softmax(x x^T) x over the nodes of each configuration, x (nodes, configs, width):
    attention without projections or scale, like Keras' `Attention()([x, x])`."""
    rows = x.transpose(0, 1)
    return attend(rows, rows, rows, scale=1.0).transpose(0, 1)


def drop_edges(edges: Tensor, share: float) -> Tensor:
    """Return round(share * edges) random columns of `edges` (2, edges), in their original order."""
    kept = torch.randperm(edges.shape[1])[: round(share * edges.shape[1])]
    return edges[:, send(kept.sort().values.numpy(), edges.device)]


def penalise(net: nn.Module, pooled: Tensor) -> Tensor:
    """Return the L2 term (), not yet weighted: the sum of squares of all MLP weights (not biases),
    plus the sum of squares of the activations `pooled` (configs, graphs, width), averaged over
    graphs and configurations. Pooling has no weights, so its activations are penalised, as by
    Keras' activity regulariser."""
    products = [module for module in net.modules() if isinstance(module, nn.Linear)]
    weights = torch.stack([product.weight.square().sum() for product in products]).sum()
    return weights + pooled.float().square().sum(dim=-1).mean()


@dataclass(frozen=True)
class ResidualSettings(node_subsets.NodeRankerSettings):
    """Settings of the residual net."""

    width: int = 64
    rounds: int = 2
    attention: bool = True  # attention among all nodes, before the residual layers
    edges: float = 0.8  # share of the edges kept at each training step
    l2: float = 1e-4  # weight of the L2 term of MLP weights and of the pooled activations
    nodes: node_subsets.NodeSettings = field(
        default_factory=lambda: node_subsets.NodeSettings(trained=100)
    )
    training: TrainingSettings = TRAINING

    def build(self, seed: int) -> "ResidualRanker":
        return ResidualRanker(self, seed)


class ResidualRanker(node_subsets.NodeRanker[ResidualSettings, node_subsets.NodeInputs]):
    """The residual net as a Ranker."""

    def make_net(self) -> "ResidualNet":
        return ResidualNet(self.settings)


class ResidualNet(node_subsets.NodeNet):
    """The residual net, which scores configurations of layout graphs."""

    def __init__(self, settings: ResidualSettings) -> None:
        super().__init__(settings.nodes, settings.width)
        width = settings.width
        self.edges, self.l2 = settings.edges, settings.l2
        self.rows = node_subsets.NodeRows(width, activation=leaky_relu)
        self.body = ResidualBody(
            width, node_subsets.NUM_LAYOUT, settings.rounds, attention=settings.attention
        )
        self.readout = LeakyMlp(width, width, 1)

    def embed(self, inputs: node_subsets.NodeInputs, configs: np.ndarray) -> Tensor:
        """Return embeddings (len(configs), width): the mean over the nodes that `take` chose."""
        given = node_subsets.layout_numbers(inputs, configs)
        layouts = given.new_zeros(len(inputs.opcodes), *given.shape[1:])
        layouts[inputs.configurable] = given
        edges = drop_edges(inputs.edge_index, self.edges) if self.training else inputs.edge_index
        x: Tensor = self.body(leaky_relu(self.rows(inputs, given)), layouts, edges)
        return x.mean(dim=0)

    def score(self, inputs: node_subsets.NodeInputs, configs: np.ndarray) -> Tensor:
        return self.readout(self.embed(inputs, configs)).squeeze(-1)

    def score_and_penalise(
        self, batch: Sequence[Any], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        embedded = [self.embed(self.take(item), configs[:, i]) for i, item in enumerate(batch)]
        pooled = torch.stack(embedded, dim=1)
        return self.readout(pooled).squeeze(-1), self.l2 * penalise(self, pooled)


@dataclass(frozen=True)
class ResidualTileSettings(RankerSettings):
    """Settings of the residual net for tiles."""

    width: int = 64
    rounds: int = 2
    attention: bool = True  # attention among all nodes of the kernel, before the residual layers
    edges: float = 0.8  # share of the edges kept at each training step
    l2: float = 1e-4  # weight of the L2 term of MLP weights and of the pooled activations
    training: TrainingSettings = TRAINING

    def build(self, seed: int) -> "ResidualTileRanker":
        return ResidualTileRanker(self, seed)


class ResidualTileRanker(NetRanker[ResidualTileSettings, KernelInputs]):
    """The residual net for tiles as a Ranker."""

    scaled_tables = ("numeric", "configs")

    def prepare(self, graph: Graph) -> KernelInputs:
        return prepare_kernel(graph)

    def make_net(self) -> "ResidualTile":
        return ResidualTile(self.settings)


class ResidualTile(nn.Module):
    """The residual net for tiles, which scores configurations of one kernel at a time."""

    def __init__(self, settings: ResidualTileSettings) -> None:
        super().__init__()
        self.width = width = settings.width
        self.edges, self.l2 = settings.edges, settings.l2
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, node_subsets.OPCODE_WIDTH)
        self.node = LeakyMlp(node_subsets.OPCODE_WIDTH + NUM_NUMERIC + NUM_CONFIG, width, width)
        self.body = ResidualBody(width, NUM_CONFIG, settings.rounds, attention=settings.attention)
        self.readout = LeakyMlp(width, width, 1)

    def embed(self, inputs: KernelInputs, configs: np.ndarray) -> Tensor:
        """Return embeddings (len(configs), width): the mean over the nodes."""
        given = inputs.configs[send(configs, inputs.configs.device)].expand(
            len(inputs.opcodes), -1, -1
        )
        nodes = torch.cat([self.opcode(inputs.opcodes), inputs.numeric], dim=-1)
        rows = torch.cat([nodes[:, None].expand(-1, len(configs), -1), given], dim=-1)
        edges = drop_edges(inputs.edge_index, self.edges) if self.training else inputs.edge_index
        x: Tensor = self.body(leaky_relu(self.node(rows)), given, edges)
        return x.mean(dim=0)

    def score_and_penalise(
        self, batch: Sequence[KernelInputs], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        pooled = torch.stack([self.embed(k, configs[:, i]) for i, k in enumerate(batch)], dim=1)
        return self.readout(pooled).squeeze(-1), self.l2 * penalise(self, pooled)

    def score_batch(self, batch: Sequence[KernelInputs], configs: np.ndarray) -> Tensor:
        return self.score_and_penalise(batch, configs)[0]

    def count_values(self, inputs: KernelInputs) -> int:
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: KernelInputs) -> np.ndarray:
        self.eval()
        step = max(1, node_subsets.CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.configs))
        chunks = [self.embed(inputs, rows[n : n + step]) for n in range(0, len(rows), step)]
        return self.readout(torch.cat(chunks)).squeeze(-1).float().cpu().numpy()
