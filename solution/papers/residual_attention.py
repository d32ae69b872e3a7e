"""A student report's residual graph net with self-attention before its convolutions.

    node features, opcode, layouts ─▶ MLP ─▶ attention ─▶ residual layers ─▶ mean ─▶ MLP ─▶ score
                           layouts ────────────────────────▲ ▲

In training, only some nodes of a graph are used, and a random share of the edges between them,
drawn anew at each step: the report calls this segment dropout. Predictions use all nodes and edges.
The net learns from at most 20 configurations per graph.

Source: a student report on the competition (rank 239 of 616): the layers
(solution.papers.residual_layers), ListMLE, Adam without extras, L2 on the MLPs and the pooling,
average pooling, 100 nodes, 10 to 100 graphs a step, 1 to 6 epochs, early stopping after 2 to 4, by
ordered pairs. Where it gives no value (share of edges, width, weight of L2): 0.8, 64, and
1e-4, which is that of the code that it repurposed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solution.models.nets.training_settings import TrainingSettings
from solution.papers.nodes import (
    NUM_LAYOUT,
    NodeInputs,
    NodeNet,
    NodeRanker,
    NodeRankerSettings,
    NodeRows,
    NodeSettings,
    layout_numbers,
)
from solution.papers.residual_layers import (
    LeakyMlp,
    ResidualBody,
    drop_edges,
    leaky_relu,
    penalise,
)

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


@dataclass(frozen=True)
class ResidualSettings(NodeRankerSettings):
    """Settings of the residual net."""

    width: int = 64
    rounds: int = 2
    attention: bool = True  # among all nodes, before the layers
    edges: float = 0.8  # share of the edges kept at each training step
    l2: float = 1e-4  # weight of the L2 term of MLP weights and of the pooled activations
    nodes: NodeSettings = field(default_factory=lambda: NodeSettings(trained=100))
    training: TrainingSettings = TRAINING

    def build(self, seed: int) -> "ResidualRanker":
        """Return an unfitted ranker."""
        return ResidualRanker(self, seed)


class ResidualRanker(NodeRanker[ResidualSettings, NodeInputs]):
    """The residual net as a Ranker."""

    def make_net(self) -> "ResidualNet":
        return ResidualNet(self.settings)


class ResidualNet(NodeNet):
    """Scores configurations of layout graphs."""

    def __init__(self, settings: ResidualSettings) -> None:
        super().__init__(settings.nodes, settings.width)
        width = settings.width
        self.edges, self.l2 = settings.edges, settings.l2
        self.rows = NodeRows(width, activation=leaky_relu)
        self.body = ResidualBody(width, NUM_LAYOUT, settings.rounds, attention=settings.attention)
        self.readout = LeakyMlp(width, width, 1)

    def embed(self, inputs: NodeInputs, configs: np.ndarray) -> Tensor:
        """Return the mean embedding (len(configs), width) of the nodes that `take` chose."""
        given = layout_numbers(inputs, configs)
        layouts = given.new_zeros(len(inputs.opcodes), *given.shape[1:])
        layouts[inputs.configurable] = given
        edges = drop_edges(inputs.edge_index, self.edges) if self.training else inputs.edge_index
        x: Tensor = self.body(leaky_relu(self.rows(inputs, given)), layouts, edges)
        return x.mean(dim=0)

    def score(self, inputs: NodeInputs, configs: np.ndarray) -> Tensor:
        return self.readout(self.embed(inputs, configs)).squeeze(-1)

    def score_and_penalise(
        self, batch: Sequence[Any], configs: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return scores (configs, graphs), and the L2 term."""
        embedded = [self.embed(self.take(item), configs[:, i]) for i, item in enumerate(batch)]
        pooled = torch.stack(embedded, dim=1)
        return self.readout(pooled).squeeze(-1), self.l2 * penalise(self, pooled)
