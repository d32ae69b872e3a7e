"""A student report's residual net for tiles: the same layers, on the nodes of a kernel.

    node features, opcode, 24 numbers ─▶ MLP ─▶ attention ─▶ residual layers ─▶ mean ─▶ MLP ─▶ score
                           24 numbers ────────────────────────▲ ▲

The configuration's numbers are inputs of every node, as a layout's are of the configurable nodes.
Kernels have few nodes, so none is dropped in training; edges are.

Source: as solution.papers.residual_attention, whose net is "tailored for the layout and
tiles dataset".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import NUM_NUMERIC
from solution.models.base import RankerSettings
from solution.models.nets.devices import send
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.nodes import CHUNK_VALUES, OPCODE_WIDTH
from solution.papers.residual_attention import TRAINING
from solution.papers.residual_layers import (
    LeakyMlp,
    ResidualBody,
    drop_edges,
    leaky_relu,
    penalise,
)
from solution.papers.tpugraphs_tile import NUM_CONFIG, KernelInputs, prepare_kernel


@dataclass(frozen=True)
class ResidualTileSettings(RankerSettings):
    """Settings of the residual net for tiles."""

    width: int = 64
    rounds: int = 2
    attention: bool = True  # among all nodes of the kernel, before the layers
    edges: float = 0.8  # share of the edges kept at each training step
    l2: float = 1e-4  # weight of the L2 term of MLP weights and of the pooled activations
    training: TrainingSettings = TRAINING

    def build(self, seed: int) -> "ResidualTileRanker":
        """Return an unfitted ranker."""
        return ResidualTileRanker(self, seed)


class ResidualTileRanker(NetRanker[ResidualTileSettings, KernelInputs]):
    """The residual net for tiles as a Ranker."""

    scaled_tables = ("numeric", "configs")

    def prepare(self, graph: Graph) -> KernelInputs:
        return prepare_kernel(graph)

    def make_net(self) -> "ResidualTile":
        return ResidualTile(self.settings)


class ResidualTile(nn.Module):
    """Score tile configurations, one kernel at a time."""

    def __init__(self, settings: ResidualTileSettings) -> None:
        super().__init__()
        self.width = width = settings.width
        self.edges, self.l2 = settings.edges, settings.l2
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = LeakyMlp(OPCODE_WIDTH + NUM_NUMERIC + NUM_CONFIG, width, width)
        self.body = ResidualBody(width, NUM_CONFIG, settings.rounds, attention=settings.attention)
        self.readout = LeakyMlp(width, width, 1)

    def embed(self, inputs: KernelInputs, configs: np.ndarray) -> Tensor:
        """Return the mean embedding (len(configs), width) of the nodes."""
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
        """Return scores (configs, graphs), and the L2 term."""
        pooled = torch.stack([self.embed(k, configs[:, i]) for i, k in enumerate(batch)], dim=1)
        return self.readout(pooled).squeeze(-1), self.l2 * penalise(self, pooled)

    def score_batch(self, batch: Sequence[KernelInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs)."""
        return self.score_and_penalise(batch, configs)[0]

    def count_values(self, inputs: KernelInputs) -> int:
        """Return nodes times width."""
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: KernelInputs) -> np.ndarray:
        """Return scores (configs,), a chunk of configurations at a time."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.configs))
        chunks = [self.embed(inputs, rows[n : n + step]) for n in range(0, len(rows), step)]
        return self.readout(torch.cat(chunks)).squeeze(-1).float().cpu().numpy()
