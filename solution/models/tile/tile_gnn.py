"""The tile net: a graph net encodes a kernel once, then an MLP scores each tile configuration.

    kernel graph ─▶ convolutions ─▶ pooled (graphs, width) ──┐
    tile table, tokens ─────────────────────────────▶ MLP ───┴─▶ MLP ─▶ scores

The kernel is encoded once for all its configurations, because they enter after the convolutions. A
token is a vector of features of one loop of the kernel under one configuration; tokens are optional
(TileGnnSettings.tokens).

Source: the late-join GraphSAGE baseline of TpuGraphs (Phothilimthana et al., 2023), with the tile
table instead of the 24 raw numbers.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.features.nodes import NUM_NUMERIC
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.loops import TOKEN_FEATURES, dimension_tokens
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import BLOCKS, join_graphs
from solution.models.nets.devices import take_rows
from solution.models.nets.layers import Mlp, NodeMlp, SelfAttention
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.models.tile.tile_forward import describe_kernel

OPCODE_WIDTH = 16  # length of the vector that embeds an opcode


@dataclass(frozen=True)
class TileGnnSettings(RankerSettings):
    """Settings of the tile net."""

    width: int = 64
    blocks: int = 2
    block: str = "both_ways"  # a name in models.nets.convolutions.BLOCKS
    tokens: bool = False  # encode each loop of the kernel (a token) as well as the feature table
    heads: int = 0  # heads of the attention across configurations; 0: none
    dropout: float = 0.1
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_choice("block", self.block, BLOCKS)

    def build(self, seed: int) -> "TileGnnRanker":
        return TileGnnRanker(self, seed)


@dataclass(frozen=True)
class TileInputs:
    """A kernel and its tile configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64: opcode number of each node
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32: numeric node features
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    output: Tensor  # (1,) int64: the node whose tensor is tiled
    table: Tensor  # (distinct configs, columns) float32: features of each configuration
    # `tokens` and `active` are empty unless the settings ask for tokens, because they are large
    tokens: Tensor  # (distinct configs, loops, TOKEN_FEATURES) float32: features of each loop
    active: Tensor  # (loops,) float32: 1 for loops with several iterations, else 0


class TileGnnRanker(NetRanker[TileGnnSettings, TileInputs]):
    """The tile net as a Ranker. If the setting `heads` is not 0, configurations scored together
    attend to each other, so a score depends on the others."""

    scaled_tables = ("numeric", "table")

    def __init__(self, settings: TileGnnSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.scores_beside_a_list = not settings.heads

    def prepare(self, graph: Graph) -> TileInputs:
        inputs = prepare(graph)
        if not self.settings.tokens:
            return inputs
        found = find_tokens(graph)
        return dataclasses.replace(inputs, tokens=found.tokens, active=found.active)

    def make_net(self) -> "TileGnn":
        return TileGnn(self.settings, len(self.scalers_["table"].mean))


def _prepare(graph: Graph) -> TileInputs:
    """Return the net's inputs for a kernel as tensors, with empty `tokens` and `active`."""
    arrays = describe_kernel(graph)
    return TileInputs(
        opcodes=torch.from_numpy(arrays.opcodes),
        numeric=torch.from_numpy(arrays.numeric),
        edge_index=torch.from_numpy(arrays.edge_index),
        output=torch.tensor([arrays.output]),
        table=torch.from_numpy(arrays.table),
        tokens=torch.empty(len(graph.distinct.first), 0, TOKEN_FEATURES),
        active=torch.empty(0),
    )


@dataclass(frozen=True)
class LoopTokens:
    """The fields of TileInputs that describe the loops of a kernel."""

    tokens: Tensor
    active: Tensor


def _find_tokens(graph: Graph) -> LoopTokens:
    tokens, active = dimension_tokens(inline_fusions(graph))
    return LoopTokens(torch.from_numpy(tokens[graph.distinct.first]), torch.from_numpy(active))


# Two caches per graph, so that nets with and without tokens share the cached inputs.
prepare, find_tokens = PerGraph(_prepare), PerGraph(_find_tokens)


class TileGnn(nn.Module):
    """The tile net: encodes a kernel once, and scores tile configurations of the kernel."""

    def __init__(self, settings: TileGnnSettings, columns: int) -> None:
        super().__init__()
        self.width = width = settings.width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        block = BLOCKS[settings.block]
        self.blocks = nn.ModuleList(block(width) for _ in range(settings.blocks))
        self.kernel = nn.Linear(3 * width, width)
        self.config = Mlp(columns, 2 * width, width)
        self.tokens = DimensionTokens(TOKEN_FEATURES, width) if settings.tokens else None
        # Attention across configurations, as in the best entries of the competition.
        self.rivals = SelfAttention(2 * width, settings.heads) if settings.heads else None
        self.joint = nn.Sequential(
            nn.Linear(2 * width, 2 * width),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            Mlp(2 * width, width, 1),
        )

    def score_batch(self, batch: Sequence[TileInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs) of sampled configurations (see RankingNet)."""
        # vectors of configurations (configs, graphs, width)
        of_config = self._encode_configs(batch, configs)
        nodes, edge_index, member = _merge(batch)
        opcodes = torch.cat([inputs.opcodes for inputs in batch])
        numeric = torch.cat([inputs.numeric for inputs in batch])
        x = cast("Tensor", self.node(self.opcode.weight, opcodes, numeric))
        for block in self.blocks:
            x = block(x, edge_index)
        kernels = self._pool(x, nodes, member)
        joined = torch.cat([of_config, kernels.expand_as(of_config)], dim=-1)
        if self.rivals is not None:
            joined = self.rivals(joined)
        return cast("Tensor", self.joint(joined).squeeze(-1))

    def count_values(self, inputs: TileInputs) -> int:
        """Return how many values a layer holds for one configuration: only the width, because a
        kernel is encoded once for all its configurations."""
        return self.width

    @torch.inference_mode()
    def score_graph(self, inputs: TileInputs) -> np.ndarray:
        """Return scores (distinct configs,) of all configurations of a kernel."""
        self.eval()
        everything = np.arange(len(inputs.table))
        return self.score_batch([inputs], everything[:, None])[:, 0].cpu().numpy()

    def _encode_configs(self, batch: Sequence[TileInputs], configs: np.ndarray) -> Tensor:
        """Return vectors (configs, graphs, width) that encode the sampled configurations."""
        tables = torch.stack(take_rows([inputs.table for inputs in batch], configs), dim=1)
        encoded = self.config(tables)
        if self.tokens is not None:
            tokens = torch.stack(take_rows([inputs.tokens for inputs in batch], configs), dim=1)
            encoded = encoded + self.tokens(tokens, torch.stack([item.active for item in batch]))
        return encoded

    def _pool(self, x: Tensor, outputs: Tensor, member: Tensor) -> Tensor:
        """Return a vector (graphs, ..., width) of each kernel: a linear map of the mean and the
        maximum over its nodes and of the value of its output node. x: (nodes, ..., width);
        `outputs`: (graphs,) output nodes; `member`: (nodes,) the graph of each node."""
        pooled = [
            scatter(x, member, dim=0, dim_size=len(outputs), reduce="mean"),
            _find_most(x, member, len(outputs)),
            x[outputs],
        ]
        return self.kernel(torch.cat(pooled, dim=-1))


def _find_most(x: Tensor, member: Tensor, graphs: int) -> Tensor:
    """Return the maximum (graphs, ...) of x (nodes, ...) over each graph's nodes. `member`:
    (nodes,) the graph of each node."""
    # torch_geometric's scatter is not used: on a GPU it warns unless torch-scatter is installed.
    index = member.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    most = x.new_zeros(graphs, *x.shape[1:])
    return most.scatter_reduce(0, index, x, "amax", include_self=False)


def _merge(batch: Sequence[TileInputs]) -> tuple[Tensor, Tensor, Tensor]:
    """Join kernels into one graph. Return their output nodes (graphs,), the edges (2, edges), and
    the kernel of each node (nodes,)."""
    sizes = [len(inputs.opcodes) for inputs in batch]
    starts, edges, member = join_graphs(sizes, [inputs.edge_index for inputs in batch])
    return torch.cat([inputs.output for inputs in batch]) + starts, edges, member


class DimensionTokens(nn.Module):
    """An encoder of a kernel's loops: the sum over loops of active * gate(token) * value(token). A
    token has a loop's features; `active` is 0 for a loop with a single iteration, else 1.

    Shapes: tokens (..., loops, features), active (..., loops) -> (..., width). Source: Kaufman et
    al., "A learned performance model for TPUs", MLSys 2021.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.value = Mlp(features, width, width)
        self.gate = nn.Linear(features, width)

    def forward(self, tokens: Tensor, active: Tensor) -> Tensor:
        gated = torch.sigmoid(self.gate(tokens)) * self.value(tokens)
        return (gated * active.unsqueeze(-1)).sum(dim=-2)
