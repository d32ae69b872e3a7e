"""A residual graph net with self-attention among the nodes, of a student report.

    node features, opcode, layouts ─▶ MLP ─▶ residual blocks ─▶ attention ─▶ mean ─▶ MLP ─▶ score
                           layouts ──────────▲ ▲

Only some nodes of a graph are looked at, and of the edges between them a random share is kept at a
training step, other ones at each: what the report calls segment dropout.

Source: a student report on the competition (rank 239 of 616), which adds attention to the baseline
of TpuGraphs; ListMLE, Adam (no decay of the weights), average pooling, early stopping, 100 nodes
and 20 configurations at a time. Where it is silent (the share of edges, the width, the heads, how
many nodes a graph that is predicted may have): 0.8, 64, 4, and 1,000 nodes, as attention grows with
their square.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from solution.models.nets.convolutions import both_ways
from solution.models.nets.layers import Mlp, SelfAttention
from solution.models.nets.training_loop import TrainingSettings
from solution.models.papers.nodes import NodeInputs, NodeRanker, NodeRankerSettings, NodeSettings
from solution.models.papers.tpugraphs import JoinedNet


@dataclass(frozen=True)
class ResidualSettings(NodeRankerSettings):
    """Settings of the residual net."""

    width: int = 64
    rounds: int = 2
    heads: int = 4  # of the attention among nodes; 0: none
    edges: float = 0.8  # share of the edges that are kept at a training step
    nodes: NodeSettings = field(default_factory=lambda: NodeSettings(trained=100, scored=1000))
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            loss="list_mle", weight_decay=0.0, configs_per_graph=20, max_configs=None
        )
    )

    def build(self, seed: int) -> "ResidualRanker":
        """Make a ranker that is not fitted yet."""
        return ResidualRanker(self, seed)


class ResidualRanker(NodeRanker[ResidualSettings, NodeInputs]):
    """The residual net as a Ranker."""

    def make_net(self) -> "ResidualNet":
        return ResidualNet(self.settings)


class ResidualNet(JoinedNet):
    """Scores configurations of layout graphs."""

    def __init__(self, settings: ResidualSettings) -> None:
        super().__init__(settings.nodes, settings.width, settings.rounds, settings.heads)
        self.edges = settings.edges
        self.attention = SelfAttention(self.width, settings.heads) if settings.heads else None
        self.readout = Mlp(self.width, self.width, 1)

    def score(self, inputs: NodeInputs, configs: np.ndarray) -> Tensor:
        edges = inputs.edge_index
        if self.training:
            edges = drop_edges(edges, self.edges)
        x = self.encode(inputs, configs, both_ways(edges))
        if self.attention is not None:
            x = self.attention(x)
        return self.readout(x.mean(dim=0)).squeeze(-1)


def drop_edges(edges: Tensor, share: float) -> Tensor:
    """A random `share` of the edges (2, edges), rounded, in their order."""
    kept = torch.randperm(edges.shape[1])[: round(share * edges.shape[1])]
    return edges[:, kept.sort().values.to(edges.device)]
