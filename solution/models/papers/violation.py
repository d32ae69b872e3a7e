"""Attention over a soft adjacency, and the violation ratio, of a student report.

    node features, opcode, layouts ─▶ MLP ─▶ attention blocks ─▶ mean ───────────┐
    violation ratio of the configuration ────────────────────────────────────────┼─▶ MLP ─▶ score
    (future work)  mean over the nodes of importance of the configuration ───────┘

Every node attends to every other, to those that it shares no edge with a tenth as much:

    attention(i, j) = a(i, j) exp(q_i k_j / sqrt(d)) / sum over l of a(i, l) exp(q_i k_l / sqrt(d))

with a = 1 for neighbours and the node itself, 0.1 for others. The violation ratio
(solution.features.layout.violations) is of the whole graph. Random nodes are dropped so that
attention can be paid for; nodes of importance (solution.features.layout.conflict_nodes) are kept
before all others.

Source: a student report on the competition (rank 107 of 616), with 500, 1,000 or 10,000 nodes, or
5,000 whose features are compressed to 30. Where it is silent (the blocks, how features are
compressed, how the nodes of importance are made use of): those of the transformer, norm first; by a
learned product; as above.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.features.layout.conflict_nodes import Importance, find_importance
from solution.features.layout.violations import UNSET, violation_ratios
from solution.features.pruning import PRUNINGS
from solution.models.nets.layers import Mlp, SelfAttention
from solution.models.nets.training_loop import TrainingSettings
from solution.models.papers.nodes import (
    NodeInputs,
    NodeNet,
    NodeRanker,
    NodeRankerSettings,
    NodeRows,
    NodeSettings,
    layout_numbers,
)
from solution.models.settings import check_choice

NOT_NEIGHBOURS = 0.1


@dataclass(frozen=True)
class ViolationSettings(NodeRankerSettings):
    """Settings of the net with the violation ratio."""

    width: int = 64
    rounds: int = 2
    heads: int = 4
    features: int | None = None  # the numeric ones are compressed to so many; None: they are not
    ratio: bool = True  # the violation ratio
    unset: str = "suits"  # in it, a node without a layout of its own: of features' UNSET
    importance: bool = False  # nodes of importance
    nodes: NodeSettings = field(default_factory=lambda: NodeSettings(trained=1000, scored=1000))
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(configs_per_graph=16, max_configs=None)
    )

    def __post_init__(self) -> None:
        check_choice("unset", self.unset, UNSET)

    def build(self, seed: int) -> "ViolationRanker":
        """Make a ranker that is not fitted yet."""
        return ViolationRanker(self, seed)


@dataclass(frozen=True)
class ViolationInputs(NodeInputs):
    """A layout graph, or some of its nodes, as tensors."""

    ratio: Tensor  # (distinct configs, 1) float32
    importance: Importance | None  # None: not asked for
    numbers: np.ndarray  # (nodes,) int64 of the nodes in `importance`

    def keep(self, nodes: Tensor) -> "ViolationInputs":
        return dataclasses.replace(super().keep(nodes), numbers=self.numbers[nodes.cpu().numpy()])

    def important(self, configs: np.ndarray) -> Tensor:
        """Whether each node is of importance (nodes, len(configs), 1) float32 in configurations."""
        assert self.importance is not None
        found = self.importance.of(self.codebook.codes[configs])[:, self.numbers]
        return torch.from_numpy(found.T[..., None].astype(np.float32)).to(self.opcodes.device)


class ViolationRanker(NodeRanker[ViolationSettings, ViolationInputs]):
    """The net with the violation ratio as a Ranker."""

    scaled_tables = ("numeric", "ratio")

    def prepare(self, graph: Graph) -> ViolationInputs:
        inputs, nodes = super().prepare(graph), self.settings.nodes
        find = _finder(nodes.pruning, nodes.hops)
        return ViolationInputs(
            **{f.name: getattr(inputs, f.name) for f in dataclasses.fields(inputs)},
            ratio=_ratios(self.settings.unset)(graph),
            importance=find(graph) if self.settings.importance else None,
            numbers=np.arange(len(inputs.opcodes)),
        )

    def make_net(self) -> "ViolationNet":
        return ViolationNet(self.settings)


@cache
def _ratios(unset: str) -> PerGraph[Tensor]:
    return PerGraph(lambda graph: torch.from_numpy(violation_ratios(graph, unset)[:, None]).float())


@cache
def _finder(pruning: str, hops: int) -> PerGraph[Importance]:
    return PerGraph(lambda graph: find_importance(PRUNINGS[pruning](graph, hops)))


class SoftBlock(nn.Module):
    """Attention with a bias, then an MLP on each node, both residual and normed first.

    Shapes: x (nodes, configs, width), bias (nodes, nodes) -> as x.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, 2 * width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention(x, bias)
        return x + self.mlp(self.norm(x))


class ViolationNet(NodeNet):
    """Scores configurations of layout graphs."""

    def __init__(self, settings: ViolationSettings) -> None:
        width = settings.width
        super().__init__(settings.nodes, width, settings.heads)
        self.ratio, self.importance = settings.ratio, settings.importance
        self.rows = NodeRows(width, settings.features)
        blocks = (SoftBlock(width, settings.heads) for _ in range(settings.rounds))
        self.blocks = nn.ModuleList(blocks)
        self.readout = Mlp(width * (1 + self.importance) + self.ratio, width, 1)

    def preferred(self, inputs: ViolationInputs) -> np.ndarray:
        if inputs.importance is None:
            return super().preferred(inputs)
        return inputs.importance.nodes[inputs.numbers]

    def score(self, inputs: ViolationInputs, configs: np.ndarray) -> Tensor:
        x = self.rows(inputs, layout_numbers(inputs, configs))
        bias = soft_adjacency(inputs.edge_index, len(x)).log()
        for block in self.blocks:
            x = block(x, bias)
        embedding = [x.mean(dim=0)]
        if self.importance:
            important = inputs.important(configs)
            embedding.append((x * important).sum(dim=0) / important.sum(dim=0).clamp(min=1))
        if self.ratio:
            embedding.append(inputs.ratio[configs])
        return self.readout(torch.cat(embedding, dim=-1)).squeeze(-1)


def soft_adjacency(edges: Tensor, num_nodes: int) -> Tensor:
    """(nodes, nodes) float32: 1 for a node itself and its neighbours by `edges`, else 0.1."""
    weights = torch.full((num_nodes, num_nodes), NOT_NEIGHBOURS, device=edges.device)
    weights.fill_diagonal_(1)
    weights[edges[0], edges[1]] = weights[edges[1], edges[0]] = 1
    return weights
