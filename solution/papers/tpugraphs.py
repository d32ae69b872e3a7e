"""The layout and tile baselines of TpuGraphs.

Layouts: GraphSAGE, trained on one segment of the graph per step.

    node features, opcode, layouts ─▶ MLP ─▶ 3 SAGE blocks ─▶ mean, two sums ─▶ MLP ─▶ score
                           layouts ───────────▲ ▲ ▲

The configuration's layouts are inputs of the configurable nodes, and inputs of each block again. A
score is computed from the whole graph, but the gradient runs only through one random segment of
consecutive nodes per step; all other nodes count as constants. So the memory for gradients grows
with the segment, while the time, and the memory of one layer, grow with the graph. With
`segment=None` the gradient runs through all nodes: full graph training. The graph may also be
pruned, or random nodes of it kept (NodeSettings). `block="gcn"` replaces GraphSAGE by graph
convolutions. A block reads all nodes that send messages, and returns the first `count` of them,
which receive messages: all nodes, or the nodes of the segment. Shapes of a block: x (nodes,
configs, width), layouts (nodes, configs, 18), edge_index (2, edges) from sender to receiver, scale
(nodes,) from `inverse_root_degrees` -> (count, configs, width).

Tiles: nets that differ in where the configuration's 24 numbers, standardised, join the kernel.

    none     sum of the nodes ─────────────────────────────┐
    late     nodes ─▶ MLP ─▶ convolutions ─▶ sum ──────────┤
             24 numbers ───────────────────────────────────┴─▶ MLP ─▶ score
    early    nodes, 24 numbers ─▶ MLP ─▶ convolutions ─▶ sum ─▶ MLP ─▶ score

With `heads`, a block of attention among all nodes of a kernel stands before the convolutions, as in
a student report (solution.papers.soft_attention).

Source: Phothilimthana et al., "TpuGraphs: A Performance Prediction Dataset on Large Tensor
Computational Graphs", NeurIPS 2023, and its published code. Differences for layouts: the published
code has a symmetric graph convolution instead of GraphSAGE, and also cuts the edges that leave the
segment. Where the source gives no detail, layouts are scaled to 0 ... 1, and the norm is a layer
norm. Differences for tiles: this module uses the blocks of the project's other nets,
which have a layer norm where the published GraphSAGE scales rows to length 1, and residuals in both
kinds of convolution. The mean over nodes is added to the sum over nodes, with a layer norm over
both, because kernels have 2 to hundreds of nodes. The published second loss, a squared error of
weight 0.02, is a setting of the training (`regression`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import degree, scatter

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import BLOCKS, both_ways, join_graphs
from solution.models.nets.devices import take_rows
from solution.models.nets.layers import Mlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.papers import node_subsets
from solution.papers.soft_attention import NOT_ADJACENT, SoftAttention

JOINS = ("late", "early")
NUM_CONFIG = vocabulary.NUM_TILE_FEATURES


@dataclass(frozen=True)
class TpuGraphsSettings(node_subsets.NodeRankerSettings):
    """Settings of the layout baseline."""

    width: int = 64
    block: str = "sage"  # a name in JOINED_BLOCKS
    rounds: int = 3
    segment: int | None = 1000  # number of nodes with gradients; None: all nodes
    nodes: node_subsets.NodeSettings = field(default_factory=node_subsets.NodeSettings)
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            graphs_per_step=4, configs_per_graph=16, max_configs=None
        )
    )

    def __post_init__(self) -> None:
        check_choice("block", self.block, JOINED_BLOCKS)

    def build(self, seed: int) -> "TpuGraphsRanker":
        return TpuGraphsRanker(self, seed)


class TpuGraphsRanker(node_subsets.NodeRanker[TpuGraphsSettings, node_subsets.NodeInputs]):
    """The layout baseline as a Ranker."""

    def make_net(self) -> "TpuGraphs":
        return TpuGraphs(self.settings)


class JoinedNet(node_subsets.NodeNet):
    """The part of a net before its score: node embeddings, and blocks that get the layouts again. A
    subclass defines the score. `columns`: number of numeric features of a node."""

    def __init__(
        self,
        nodes: node_subsets.NodeSettings,
        width: int,
        rounds: int,
        block: str = "sage",
        columns: int = node_subsets.NUM_RAW,
    ) -> None:
        super().__init__(nodes, width)
        self.rows = node_subsets.NodeRows(width, columns)
        self.blocks = nn.ModuleList(JOINED_BLOCKS[block](width) for _ in range(rounds))

    def begin(self, inputs: node_subsets.NodeInputs, given: Tensor) -> Tensor:
        """Return the node embeddings (nodes, configs, width) before the first block. `given`: the
        configurations' layouts, from node_subsets.layout_numbers."""
        rows: Tensor = self.rows(inputs, given)
        return rows

    def encode(
        self,
        inputs: node_subsets.NodeInputs,
        configs: np.ndarray,
        edges: Tensor,
        segment: Tensor | None = None,
    ) -> Tensor:
        """Return the node embeddings (nodes, configs, width) after the last block, with gradients
        through the nodes `segment` (k,), or all. `edges`: (2, edges) from sender to receiver."""
        given = node_subsets.layout_numbers(inputs, configs)
        layouts = given.new_zeros(len(inputs.opcodes), *given.shape[1:])
        layouts[inputs.configurable] = given
        scale = inverse_root_degrees(edges, len(layouts))
        if segment is None:
            return self._encode(inputs, given, layouts, edges, scale)[0]
        sources, local = cut_segment(edges, segment, len(inputs.opcodes))
        # First all nodes without gradients, then the segment's nodes again with gradients: the
        # messages from nodes beyond the segment are constants.
        with torch.no_grad():
            beyond = sources[len(segment) :]
            x, constants = self._encode(inputs, given, layouts, edges, scale, beyond)
        # clear autocast's low-precision copies of weights: they were made without gradients, and
        # the segment would reuse them
        torch.clear_autocast_cache()
        part = inputs.keep(segment)
        inside = self.begin(part, node_subsets.layout_numbers(part, configs))
        for block, constant in zip(self.blocks, constants, strict=True):
            senders = torch.cat([inside, constant])
            inside = block(senders, layouts[sources], local, len(segment), scale[sources])
        return x.index_copy(0, segment, inside)

    def _encode(
        self,
        inputs: node_subsets.NodeInputs,
        given: Tensor,
        layouts: Tensor,
        edges: Tensor,
        scale: Tensor,
        kept: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the embeddings (nodes, configs, width) of all nodes after the last block, and the
        embeddings of the nodes `kept` (k,) before each block. `given`: see `begin`; `layouts`,
        `edges` and `scale`: see the shapes of a block in the module's docstring."""
        x = self.begin(inputs, given)
        before = []
        for block in self.blocks:
            if kept is not None:
                before.append(x[kept])
            x = block(x, layouts, edges, len(x), scale)
        return x, before


def pool(x: Tensor, configurable: Tensor) -> Tensor:
    """Return the mean over all nodes, the sum over all nodes and the sum over configurable nodes,
    concatenated; sums are scaled to length 1. Shapes: x (nodes, configs, width), configurable (k,)
    -> (configs, 3 width)."""
    sums = [
        functional.normalize(x[chosen].sum(dim=0), dim=-1) for chosen in (slice(None), configurable)
    ]
    return torch.cat([x.mean(dim=0), *sums], dim=-1)


class TpuGraphs(JoinedNet):
    """The layout baseline, a net that scores configurations of layout graphs."""

    def __init__(self, settings: TpuGraphsSettings) -> None:
        super().__init__(settings.nodes, settings.width, settings.rounds, settings.block)
        self.segment = settings.segment
        self.readout = Mlp(3 * settings.width, settings.width, 1)

    def score(self, inputs: node_subsets.NodeInputs, configs: np.ndarray) -> Tensor:
        segment = None
        if self.training and self.segment is not None and self.segment < len(inputs.opcodes):
            segment = draw_segment(len(inputs.opcodes), self.segment).to(inputs.opcodes.device)
        x = self.encode(inputs, configs, both_ways(inputs.edge_index), segment)
        return self.readout(pool(x, inputs.configurable)).squeeze(-1)


def draw_segment(num_nodes: int, size: int) -> Tensor:
    """Return the nodes (k,) of a random segment: at most `size` consecutive nodes."""
    first = size * int(torch.randint(-(-num_nodes // size), ()))
    return torch.arange(first, min(first + size, num_nodes))


def cut_segment(edges: Tensor, segment: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the nodes (sources,) of the segment, followed by the other senders of messages into
    the segment; and the edges (2, k) of the messages, from sender to receiver, as positions in the
    first result."""
    inside = torch.zeros(num_nodes, dtype=torch.bool, device=edges.device)
    inside[segment] = True
    edges = edges[:, inside[edges[1]]]
    beyond = torch.unique(edges[0][~inside[edges[0]]])
    sources = torch.cat([segment, beyond])
    position = torch.empty(num_nodes, dtype=torch.int64, device=edges.device)
    position[sources] = torch.arange(len(sources), device=edges.device)
    return sources, position[edges]


class JoinedBlock(nn.Module):
    """The block x' = x + GELU(norm(W z + W_neighbours mean of z over neighbours)); z is x and
    layouts, concatenated. Source: GraphSAGE (Hamilton et al., 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = SAGEConv(width + NUM_LAYOUT_FEATURES, width, aggr="mean", node_dim=0)
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, layouts: Tensor, edge_index: Tensor, count: int, scale: Tensor
    ) -> Tensor:
        del scale  # only JoinedGcnBlock needs the degrees; here messages are averaged
        joined = torch.cat([x, layouts], dim=-1)
        messages = self.convolution((joined, joined[:count]), edge_index)
        return x[:count] + functional.gelu(self.norm(messages))


class JoinedGcnBlock(nn.Module):
    """The block x' = x + GELU(norm(D^-1/2 (A + I) D^-1/2 z W + b)); z is x and layouts,
    concatenated; A are the adjacency matrix and D the degrees (of A + I) in the whole graph.
    Source: Kipf and Welling, ICLR 2017."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.product = nn.Linear(width + NUM_LAYOUT_FEATURES, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, layouts: Tensor, edge_index: Tensor, count: int, scale: Tensor
    ) -> Tensor:
        weights = scale[:, None, None]
        sent = self.product(torch.cat([x, layouts], dim=-1)) * weights.to(x.dtype)
        source, target = edge_index
        received = sent[:count].index_add(0, target, sent[source])
        messages = received * weights[:count] + self.bias
        return x[:count] + functional.gelu(self.norm(messages))


JOINED_BLOCKS: dict[str, type[nn.Module]] = {"sage": JoinedBlock, "gcn": JoinedGcnBlock}


def inverse_root_degrees(edges: Tensor, num_nodes: int) -> Tensor:
    """Return 1 / sqrt(1 + number of messages that a node receives) for each node: (nodes,)."""
    return (degree(edges[1], num_nodes) + 1).rsqrt()


@dataclass(frozen=True)
class TpuGraphsTileSettings(RankerSettings):
    """Settings of the tile baselines."""

    width: int = 64
    # "sage": GraphSAGE, as in the tile net; None: no messages, an MLP on the sum of the nodes
    block: str | None = "sage"
    rounds: int = 3
    join: str = "late"  # a name in JOINS
    heads: int = 0  # heads of attention among nodes, before the convolutions; 0: no attention
    head_width: int = 32
    mask: float | None = NOT_ADJACENT  # weight of nodes that are not adjacent; None: no mask
    training: TrainingSettings = TrainingSettings(
        loss="list_mle", graphs_per_step=10, configs_per_graph=10
    )

    def __post_init__(self) -> None:
        check_choice("block", self.block, (*BLOCKS, None))
        check_choice("join", self.join, JOINS)

    def build(self, seed: int) -> "TpuGraphsTileRanker":
        return TpuGraphsTileRanker(self, seed)


@dataclass(frozen=True)
class KernelInputs:
    """A kernel and its distinct configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64: ids of solution.domain.vocabulary
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32: numeric node features
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    configs: Tensor  # (distinct configs, 24) float32: sizes of the tiles


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
    """A tile baseline, a net that scores tile configurations of kernels."""

    def __init__(self, settings: TpuGraphsTileSettings) -> None:
        super().__init__()
        width = settings.width
        self.width = max(width, 3 * settings.heads * settings.head_width)
        self.is_early = settings.join == "early"
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, node_subsets.OPCODE_WIDTH)
        columns = node_subsets.OPCODE_WIDTH + NUM_NUMERIC + NUM_CONFIG * self.is_early
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
        """Return scores (configs, graphs); the kernels are joined into one graph."""
        chosen = take_rows([inputs.configs for inputs in batch], configs)
        given = torch.stack(chosen)  # (graphs, configs, 24): sizes of tiles
        sizes = [len(inputs.opcodes) for inputs in batch]
        _, edges, member = join_graphs(sizes, [inputs.edge_index for inputs in batch])
        opcodes = self.opcode(torch.cat([inputs.opcodes for inputs in batch]))
        nodes = torch.cat([opcodes, torch.cat([inputs.numeric for inputs in batch])], dim=-1)
        rows = nodes[:, None]  # (nodes, 1, columns), the same for all configurations
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
        """Return how many values a layer holds for one configuration: the width, times the number
        of nodes if configurations join early."""
        return self.width * (len(inputs.opcodes) if self.is_early else 1)

    @torch.inference_mode()
    def score_graph(self, inputs: KernelInputs) -> np.ndarray:
        self.eval()
        step = max(1, node_subsets.CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.configs))[:, None]
        chunks = [self.score_batch([inputs], rows[n : n + step]) for n in range(0, len(rows), step)]
        return torch.cat(chunks)[:, 0].float().cpu().numpy()
