"""The tile baselines of TpuGraphs, by where the 24 numbers of the configuration join the kernel.

    none     sum of the nodes ─────────────────────────────┐
    late     nodes ─▶ MLP ─▶ convolutions ─▶ sum ──────────┤
             24 numbers ───────────────────────────────────┴─▶ MLP ─▶ score
    early    nodes, 24 numbers ─▶ MLP ─▶ convolutions ─▶ sum ─▶ MLP ─▶ score

The numbers are those of the file, standardised. solution.models.tile.tile_gnn has a net with the
tile table instead. With `heads`, a block of attention among all nodes of a kernel stands
before the convolutions, as in a student report (solution.papers.soft_attention).

Source: Phothilimthana et al., "TpuGraphs: A Performance Prediction Dataset on Large Tensor
Computational Graphs", NeurIPS 2023, and its published code. Differences: the blocks are shared with
our other nets, with a layer norm where its GraphSAGE scales rows to length 1, and residuals for
both kinds; besides the sum over nodes there is their mean, and a layer norm over both, because
kernels have 2 to hundreds of nodes. Its second loss, a squared error of weight 0.02, is a setting
of the training (`regression`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import BLOCKS, join_graphs
from solution.models.nets.devices import take_rows
from solution.models.nets.layers import Mlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.papers.nodes import CHUNK_VALUES, OPCODE_WIDTH
from solution.papers.soft_attention import NOT_ADJACENT, SoftAttention

JOINS = ("late", "early")
NUM_CONFIG = vocabulary.NUM_TILE_FEATURES


@dataclass(frozen=True)
class TpuGraphsTileSettings(RankerSettings):
    """Settings of the tile baselines."""

    width: int = 64
    block: str | None = "sage"  # as in the tile net; None: no graph, an MLP on the sum of the nodes
    rounds: int = 3
    join: str = "late"  # a name in JOINS
    heads: int = 0  # of attention among nodes, before the convolutions; 0: no attention
    head_width: int = 32
    mask: float | None = NOT_ADJACENT  # weight of nodes that are not adjacent; None: no mask
    training: TrainingSettings = TrainingSettings(
        loss="list_mle", graphs_per_step=10, configs_per_graph=10
    )

    def __post_init__(self) -> None:
        check_choice("block", self.block, (*BLOCKS, None))
        check_choice("join", self.join, JOINS)

    def build(self, seed: int) -> "TpuGraphsTileRanker":
        """Return an unfitted ranker."""
        return TpuGraphsTileRanker(self, seed)


@dataclass(frozen=True)
class KernelInputs:
    """A kernel and its distinct configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    configs: Tensor  # (distinct configs, 24) float32


class TpuGraphsTileRanker(NetRanker[TpuGraphsTileSettings, KernelInputs]):
    """A tile baseline as a Ranker."""

    scaled_tables = ("numeric", "configs")

    def prepare(self, graph: Graph) -> KernelInputs:
        return prepare_kernel(graph)

    def make_net(self) -> "TpuGraphsTile":
        return TpuGraphsTile(self.settings)


def _prepare_kernel(graph: Graph) -> KernelInputs:
    return KernelInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        edge_index=torch.from_numpy(graph.edges.T[::-1].copy()),
        configs=torch.from_numpy(graph.tiles[graph.distinct.first].astype(np.float32)),
    )


prepare_kernel = PerGraph(_prepare_kernel)


class TpuGraphsTile(nn.Module):
    """Score tile configurations of kernels."""

    def __init__(self, settings: TpuGraphsTileSettings) -> None:
        super().__init__()
        width = settings.width
        self.width = max(width, 3 * settings.heads * settings.head_width)
        self.is_early = settings.join == "early"
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        columns = OPCODE_WIDTH + NUM_NUMERIC + NUM_CONFIG * self.is_early
        self.node: nn.Module = nn.Identity()
        self.blocks = nn.ModuleList()
        if settings.block is not None:
            self.node = Mlp(columns, width, width)
            self.blocks.extend(BLOCKS[settings.block](width) for _ in range(settings.rounds))
            columns = width
        self.attention: SoftAttention | None = None
        if settings.heads:
            self.attention = SoftAttention(
                columns, settings.heads, settings.head_width, settings.mask
            )
        self.norm = nn.LayerNorm(2 * columns)
        joined = 2 * columns + NUM_CONFIG * (not self.is_early)
        self.readout = nn.Sequential(nn.Linear(joined, width), nn.GELU(), Mlp(width, width, 1))

    def score_batch(self, batch: Sequence[KernelInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs): all kernels form one disconnected graph."""
        chosen = take_rows([inputs.configs for inputs in batch], configs)
        given = torch.stack(chosen)  # (graphs, configs, 24)
        sizes = [len(inputs.opcodes) for inputs in batch]
        _, edges, member = join_graphs(sizes, [inputs.edge_index for inputs in batch])
        opcodes = self.opcode(torch.cat([inputs.opcodes for inputs in batch]))
        nodes = torch.cat([opcodes, torch.cat([inputs.numeric for inputs in batch])], dim=-1)
        rows = nodes[:, None]  # (nodes, 1, columns)
        if self.is_early:
            rows = torch.cat([rows.expand(-1, len(configs), -1), given[member]], dim=-1)
        x = self.node(rows)
        if self.attention is not None:
            parts = zip(x.split(sizes), batch, strict=True)
            x = torch.cat([self.attention(part, inputs.edge_index) for part, inputs in parts])
        for block in self.blocks:
            x = block(x, edges)
        pooled = [scatter(x, member, 0, len(batch), reduce) for reduce in ("mean", "sum")]
        joined = self.norm(torch.cat(pooled, dim=-1))
        if not self.is_early:
            joined = torch.cat([joined.expand(-1, len(configs), -1), given], dim=-1)
        return self.readout(joined).squeeze(-1).T

    def count_values(self, inputs: KernelInputs) -> int:
        """Return the widest layer, times the nodes if each of them gets the configuration."""
        return self.width * (len(inputs.opcodes) if self.is_early else 1)

    @torch.inference_mode()
    def score_graph(self, inputs: KernelInputs) -> np.ndarray:
        """Return scores (configs,), a chunk of configurations at a time."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.configs))[:, None]
        chunks = [self.score_batch([inputs], rows[n : n + step]) for n in range(0, len(rows), step)]
        return torch.cat(chunks)[:, 0].float().cpu().numpy()
