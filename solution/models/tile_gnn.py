"""A graph net for tile: the kernel is encoded once, the tile joins late.

    kernel graph ─▶ convolutions ─▶ pooled (graphs, width) ──┐
    tile table ─────────────────────▶ MLP ───────────────────┴─▶ MLP ─▶ scores

Source: the late-join GraphSAGE baseline of TpuGraphs (Phothilimthana et al., 2023), with the tile
table instead of the 24 raw numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from solution import vocabulary
from solution.data.graphs import PerGraph
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.features.tile_table import tile_table
from solution.features.tiling import output_node
from solution.graph import Graph
from solution.models.layers import BothWaysBlock, Mlp
from solution.models.net_ranker import NetRanker
from solution.models.sampling import deduplicated
from solution.models.training import TrainingSettings

OPCODE_WIDTH = 16


@dataclass(frozen=True)
class TileGnnSettings:
    """Settings of the tile net."""

    width: int = 64
    blocks: int = 2
    dropout: float = 0.1
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def build(self, seed: int) -> "TileGnnRanker":
        """Make a ranker that is not fitted yet."""
        return TileGnnRanker(self, seed)


@dataclass(frozen=True)
class TileInputs:
    """A kernel and its tile configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    output: Tensor  # (1,) int64: the node whose tensor is cut into tiles
    table: Tensor  # (distinct configs, columns) float32


class TileGnnRanker(NetRanker[TileGnnSettings, TileInputs]):
    """The tile net as a Ranker."""

    settings_class = TileGnnSettings
    scaled_tables = ("numeric", "table")

    def prepare(self, graph: Graph) -> TileInputs:
        return _prepared(graph)

    def make_net(self) -> "TileGnn":
        return TileGnn(self.settings, len(self.scalers_["table"].mean))


def prepare(graph: Graph) -> TileInputs:
    """Describe the nodes and the distinct configurations."""
    table = tile_table(graph).to_numpy(order="c")[deduplicated(graph).first]
    return TileInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        edge_index=torch.from_numpy(graph.edges.T[::-1].copy()),
        output=torch.tensor([output_node(graph)]),
        table=torch.from_numpy(table),
    )


_prepared = PerGraph(prepare)


class TileGnn(nn.Module):
    """Scores tile configurations of kernels."""

    def __init__(self, settings: TileGnnSettings, columns: int) -> None:
        super().__init__()
        self.width = width = settings.width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = Mlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        self.blocks = nn.ModuleList(BothWaysBlock(width) for _ in range(settings.blocks))
        self.kernel = nn.Linear(3 * width, width)
        self.config = Mlp(columns, 2 * width, width)
        self.joint = nn.Sequential(
            nn.Linear(2 * width, 2 * width),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            Mlp(2 * width, width, 1),
        )

    def score_batch(self, batch: Sequence[TileInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs): all kernels form one disconnected graph."""
        tables = [inputs.table[configs[:, i]] for i, inputs in enumerate(batch)]
        kernels = self._encode(batch)  # (graphs, width)
        of_config = self.config(torch.stack(tables, dim=1))  # (configs, graphs, width)
        joined = torch.cat([of_config, kernels.expand_as(of_config)], dim=-1)
        return self.joint(joined).squeeze(-1)

    def count_values(self, inputs: TileInputs) -> int:
        """Only the width: the kernel is encoded once for all configurations."""
        return self.width

    @torch.inference_mode()
    def score_graph(self, inputs: TileInputs) -> np.ndarray:
        """(configs,)."""
        self.eval()
        everything = np.arange(len(inputs.table))
        return self.score_batch([inputs], everything[:, None])[:, 0].cpu().numpy()

    def _encode(self, batch: Sequence[TileInputs]) -> Tensor:
        sizes = torch.tensor([len(inputs.opcodes) for inputs in batch])
        starts = torch.cumsum(sizes, 0) - sizes
        device = batch[0].opcodes.device
        member = torch.repeat_interleave(torch.arange(len(batch)), sizes).to(device)
        edges = [inputs.edge_index + start for inputs, start in zip(batch, starts, strict=True)]
        opcodes = torch.cat([inputs.opcodes for inputs in batch])
        numeric = torch.cat([inputs.numeric for inputs in batch])
        x = self.node(torch.cat([self.opcode(opcodes), numeric], dim=-1))
        for block in self.blocks:
            x = block(x, torch.cat(edges, dim=1))
        output = torch.cat(
            [inputs.output + start for inputs, start in zip(batch, starts, strict=True)]
        )
        pooled = [
            scatter(x, member, dim_size=len(batch), reduce="mean"),
            scatter(x, member, dim_size=len(batch), reduce="max"),
            x[output],
        ]
        return self.kernel(torch.cat(pooled, dim=-1))
