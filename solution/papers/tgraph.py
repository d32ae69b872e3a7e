"""TGraph, the net of the competition's first place: a row for every configuration and node.

    node features, opcode, layouts ─▶ 2 linear blocks ─▶ 2 SAGE blocks ─▶ mean ─▶ score

A block is a matrix product, an instance norm over the nodes, channel attention, and attention
across the configurations that are scored together. A score therefore depends on the other
configurations: wrap the settings in SublistAverageSettings (solution.papers.wrappers) to average
over them. With `across=False` blocks have no attention across configurations, and matrix products
are twice as wide: each configuration is scored alone.

Source: Khizbullin et al., "Fast or slow? TGraph ...", Frontiers in Artificial Intelligence, 2025
(10.3389/frai.2025.1605539), and the team's description of its entry. Two details are ours, because
neither text gives them: the activation is GELU, and SAGE blocks have a residual connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from solution.domain.graph import Graph
from solution.models.base import RankerSettings
from solution.models.nets.layers import standardise
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.rows import RowInputs, Rows, prepare_rows

SCORED_TOGETHER = 128  # number of configurations of a graph that are scored together at inference
REDUCTION = 8  # factor by which channel attention reduces the channels
TEMPERATURE = 0.5  # initial value of T in ConfigAttention


@dataclass(frozen=True)
class TGraphSettings(RankerSettings):
    """Settings of TGraph; the defaults are the winners', except for the number of epochs."""

    width: int = 256
    across: bool = True  # attention across the configurations that are scored together
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            graphs_per_step=1, configs_per_graph=64, max_configs=None
        )
    )

    def build(self, seed: int) -> "TGraphRanker":
        return TGraphRanker(self, seed)


class TGraphRanker(NetRanker[TGraphSettings, RowInputs]):
    """The Ranker of TGraph. Configurations that are scored together attend to each other."""

    scaled_tables = ("numeric",)

    def prepare(self, graph: Graph) -> RowInputs:
        return prepare_rows(graph)

    def make_net(self) -> "TGraph":
        return TGraph(self.settings.width, across=self.settings.across)


class ChannelAttention(nn.Module):
    """Squeeze and excitation: x * sigmoid(W2 relu(W1 mean over nodes of x)). Shapes: x (nodes,
    configs, width) -> as x. Source: Hu et al., "Squeeze-and-excitation networks", CVPR 2018."""

    def __init__(self, width: int) -> None:
        super().__init__()
        narrow = max(1, width // REDUCTION)
        self.gate = nn.Sequential(
            nn.Linear(width, narrow), nn.ReLU(), nn.Linear(narrow, width), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x.mean(dim=0))


class ConfigAttention(nn.Module):
    """Attention across configurations: x concatenated with x * softmax(x / T). The softmax runs
    over configurations, for each node and channel; the temperature T is learned. Shapes: x (nodes,
    configs, width) -> (nodes, configs, 2 width). Source: the competition's first place."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(TEMPERATURE))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x * functional.softmax(x / self.temperature, dim=1)], dim=-1)


class Block(nn.Module):
    """The layers GELU(ConfigAttention(ChannelAttention(norm(x)))); ConfigAttention doubles the
    width. Shapes: x (nodes, configs, width // 2) -> (nodes, configs, width). If `across` is False,
    there is no ConfigAttention, and x already has the full width."""

    def __init__(self, width: int, *, across: bool = True) -> None:
        super().__init__()
        self.channels = ChannelAttention(width // 2 if across else width)
        self.configs = ConfigAttention() if across else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = standardise(x, eps=1e-5)
        return functional.gelu(self.configs(self.channels(x)))


class TGraph(nn.Module):
    """The net TGraph, which scores configurations of pruned layout graphs."""

    def __init__(self, width: int, *, across: bool = True) -> None:
        super().__init__()
        self.width = width
        self.rows = Rows()
        inner = width // 2 if across else width
        self.linear = nn.ModuleList(nn.Linear(w, inner) for w in (Rows.width, width))
        self.convolution = nn.ModuleList(SAGEConv(width, inner, node_dim=0) for _ in range(2))
        self.blocks = nn.ModuleList(Block(width, across=across) for _ in range(4))
        self.readout = nn.Linear(width, 1)

    def score_batch(self, batch: Sequence[RowInputs], configs: np.ndarray) -> Tensor:
        scores = [self._score(inputs, configs[:, i]) for i, inputs in enumerate(batch)]
        return torch.stack(scores, dim=1)

    def count_values(self, inputs: RowInputs) -> int:
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: RowInputs) -> np.ndarray:
        """Return scores (configs,); SCORED_TOGETHER configurations attend to each other."""
        self.eval()
        rows = np.arange(len(inputs.codebook.codes))
        chunks = [
            self._score(inputs, rows[first : first + SCORED_TOGETHER])
            for first in range(0, len(rows), SCORED_TOGETHER)
        ]
        return torch.cat(chunks).cpu().numpy()

    def _score(self, inputs: RowInputs, configs: np.ndarray) -> Tensor:
        x = self.rows(inputs, configs)
        for linear, block in zip(self.linear, self.blocks[:2], strict=True):
            x = block(linear(x))
        for convolution, block in zip(self.convolution, self.blocks[2:], strict=True):
            x = x + block(convolution(x, inputs.edge_index))
        return self.readout(x.mean(dim=0)).squeeze(-1)
