"""The layout baseline of TpuGraphs: GraphSAGE trained on one segment of the graph per step.

    node features, opcode, layouts ─▶ MLP ─▶ 3 SAGE blocks ─▶ mean, two sums ─▶ MLP ─▶ score
                           layouts ───────────▲ ▲ ▲

The configuration's layouts are inputs of the configurable nodes, and inputs of each block again.
The scores are those of the whole graph, but the gradient runs only through one random segment of
consecutive nodes per step; all other nodes count as constants. So the memory for gradients grows
with the segment, while the time, and the memory of one layer, grow with the graph. With
`segment=None` the gradient runs through all nodes: full graph training.

The graph may also be pruned, or random nodes of it kept (NodeSettings), with or without segments.
`block="gcn"` replaces GraphSAGE by graph convolutions.

Source: Phothilimthana et al., "TpuGraphs: A Performance Prediction Dataset on Large Tensor
Computational Graphs", NeurIPS 2023, and its published code, which has a symmetric graph convolution
instead of GraphSAGE, and also cuts the edges that leave the segment. Where these give no detail:
layouts are scaled to 0 ... 1, and the norm is a layer norm.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.models.nets.convolutions import both_ways
from solution.models.nets.layers import Mlp
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.papers.joined_blocks import JOINED_BLOCKS, inverse_root_degrees
from solution.papers.nodes import (
    NUM_NUMERIC,
    NodeInputs,
    NodeNet,
    NodeRanker,
    NodeRankerSettings,
    NodeRows,
    NodeSettings,
    layout_numbers,
)


@dataclass(frozen=True)
class TpuGraphsSettings(NodeRankerSettings):
    """Settings of the layout baseline."""

    width: int = 64
    block: str = "sage"  # a name in JOINED_BLOCKS
    rounds: int = 3
    segment: int | None = 1000  # nodes with gradients; None: all
    nodes: NodeSettings = field(default_factory=NodeSettings)
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            graphs_per_step=4, configs_per_graph=16, max_configs=None
        )
    )

    def __post_init__(self) -> None:
        check_choice("block", self.block, JOINED_BLOCKS)

    def build(self, seed: int) -> "TpuGraphsRanker":
        """Return an unfitted ranker."""
        return TpuGraphsRanker(self, seed)


class TpuGraphsRanker(NodeRanker[TpuGraphsSettings, NodeInputs]):
    """The layout baseline as a Ranker."""

    def make_net(self) -> "TpuGraphs":
        return TpuGraphs(self.settings)


class JoinedNet(NodeNet):
    """Rows, blocks that get the layouts again, and pooling over the nodes; a subclass scores.

    Args:
        columns: number of numeric features of a node.
    """

    def __init__(
        self,
        nodes: NodeSettings,
        width: int,
        rounds: int,
        block: str = "sage",
        columns: int = NUM_NUMERIC,
    ) -> None:
        super().__init__(nodes, width)
        self.rows = NodeRows(width, columns)
        self.blocks = nn.ModuleList(JOINED_BLOCKS[block](width) for _ in range(rounds))

    def begin(self, inputs: NodeInputs, given: Tensor) -> Tensor:
        """Return the nodes (nodes, configs, width) before the first block."""
        rows: Tensor = self.rows(inputs, given)
        return rows

    def encode(
        self, inputs: NodeInputs, configs: np.ndarray, edges: Tensor, segment: Tensor | None = None
    ) -> Tensor:
        """Return the nodes (nodes, configs, width) after all blocks.

        Args:
            edges: (2, edges) from sender to receiver.
            segment: the nodes (k,) with gradients; None: all.
        """
        given = layout_numbers(inputs, configs)
        layouts = given.new_zeros(len(inputs.opcodes), *given.shape[1:])
        layouts[inputs.configurable] = given
        scale = inverse_root_degrees(edges, len(layouts))
        if segment is None:
            return self._encode(inputs, given, layouts, edges, scale)[0]
        sources, local = cut_segment(edges, segment, len(inputs.opcodes))
        with torch.no_grad():
            beyond = sources[len(segment) :]
            x, constants = self._encode(inputs, given, layouts, edges, scale, beyond)
        torch.clear_autocast_cache()  # its cached casts of the weights have no gradient
        part = inputs.keep(segment)
        inside = self.begin(part, layout_numbers(part, configs))
        for block, constant in zip(self.blocks, constants, strict=True):
            senders = torch.cat([inside, constant])
            inside = block(senders, layouts[sources], local, len(segment), scale[sources])
        return x.index_copy(0, segment, inside)

    def _encode(
        self,
        inputs: NodeInputs,
        given: Tensor,
        layouts: Tensor,
        edges: Tensor,
        scale: Tensor,
        kept: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return all nodes after all blocks, and the nodes `kept` (k,) before each."""
        x = self.begin(inputs, given)
        before = []
        for block in self.blocks:
            if kept is not None:
                before.append(x[kept])
            x = block(x, layouts, edges, len(x), scale)
        return x, before


def pool(x: Tensor, configurable: Tensor) -> Tensor:
    """Return the mean of the nodes, and two sums of length 1: (configs, 3 width).

    Shapes: x (nodes, configs, width), configurable (k,) nodes, which the second sum is over.
    """
    # Sums are normalised to length 1, because their length grows with the number of nodes.
    sums = [
        functional.normalize(x[chosen].sum(dim=0), dim=-1) for chosen in (slice(None), configurable)
    ]
    return torch.cat([x.mean(dim=0), *sums], dim=-1)


class TpuGraphs(JoinedNet):
    """Score configurations of layout graphs."""

    def __init__(self, settings: TpuGraphsSettings) -> None:
        super().__init__(settings.nodes, settings.width, settings.rounds, settings.block)
        self.segment = settings.segment
        self.readout = Mlp(3 * settings.width, settings.width, 1)

    def score(self, inputs: NodeInputs, configs: np.ndarray) -> Tensor:
        segment = None
        if self.training and self.segment is not None and self.segment < len(inputs.opcodes):
            segment = draw_segment(len(inputs.opcodes), self.segment).to(inputs.opcodes.device)
        x = self.encode(inputs, configs, both_ways(inputs.edge_index), segment)
        return self.readout(pool(x, inputs.configurable)).squeeze(-1)


def draw_segment(num_nodes: int, size: int) -> Tensor:
    """Return a random one (k,) of the consecutive segments of `size` nodes."""
    first = size * int(torch.randint(-(-num_nodes // size), ()))
    return torch.arange(first, min(first + size, num_nodes))


def cut_segment(edges: Tensor, segment: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the nodes and edges that send messages into a segment.

    Returns:
        The segment followed by the other senders (sources,); and the edges (2, k) into the segment,
        numbered by positions in that array.
    """
    inside = torch.zeros(num_nodes, dtype=torch.bool, device=edges.device)
    inside[segment] = True
    edges = edges[:, inside[edges[1]]]
    beyond = torch.unique(edges[0][~inside[edges[0]]])
    sources = torch.cat([segment, beyond])
    position = torch.empty(num_nodes, dtype=torch.int64, device=edges.device)
    position[sources] = torch.arange(len(sources), device=edges.device)
    return sources, position[edges]
