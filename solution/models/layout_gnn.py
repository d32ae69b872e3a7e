"""A graph net for layout: all configurations of a pruned graph at once.

    node features ──────────────┐ once per graph
    (node, layout) pairs ── MLP ┴─▶ x (nodes, configs, width) ─▶ convolutions ─▶ readout ─▶ scores

What does not depend on the configuration is computed once, and each distinct (node, layout) pair is
embedded once, however many configurations use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from solution import vocabulary
from solution.codebook import Codebook
from solution.data.graphs import PerGraph
from solution.features.layouts import FEATURES, describe_layouts
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.features.pruning import PRUNINGS
from solution.features.work import configurable_shares
from solution.graph import Graph
from solution.models.layers import BothWaysBlock, Mlp
from solution.models.net_ranker import NetRanker
from solution.models.training import TrainingSettings

CHUNK_VALUES = 1 << 21  # values of x that are scored at once: 8 MB a tensor stay in the cache
OPCODE_WIDTH = 16
TOKEN_WIDTH = 4
NUM_SHARES = 2


@dataclass(frozen=True)
class LayoutGnnSettings:
    """Settings of the layout net."""

    width: int = 64
    blocks: int = 2
    pruning: str = "neighbourhood"  # a name in features.pruning.PRUNINGS
    hops: int = 1  # kept around the configurable nodes
    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(max_configs=None))

    def build(self, seed: int) -> "LayoutGnnRanker":
        """Make a ranker that is not fitted yet."""
        return LayoutGnnRanker(self, seed)


@dataclass(frozen=True)
class LayoutInputs:
    """A pruned graph as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    configurable: Tensor  # (configurable,) int64
    shares: Tensor  # (configurable, 2) float32: of the operations, of the bytes
    pair_node: Tensor  # (pairs,) int64 position among the configurable nodes
    pair_tokens: Tensor  # (pairs, 18) int8, 0 ... 6
    pair_features: Tensor  # (pairs, len(FEATURES)) float32
    codebook: Codebook  # its codes may be a mapped file, of which only what is asked for is read


class LayoutGnnRanker(NetRanker[LayoutGnnSettings, LayoutInputs]):
    """The layout net as a Ranker."""

    settings_class = LayoutGnnSettings
    scaled_tables = ("numeric", "pair_features")

    def prepare(self, graph: Graph) -> LayoutInputs:
        return _preparer(self.settings.pruning, self.settings.hops)(graph)

    def make_net(self) -> "LayoutGnn":
        return LayoutGnn(self.settings)

    @property
    def hops(self) -> int | None:
        return self.settings.hops if self.settings.pruning == "neighbourhood" else None


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[LayoutInputs]:
    return PerGraph(partial(prepare, pruning=pruning, hops=hops))


def prepare(graph: Graph, pruning: str, hops: int) -> LayoutInputs:
    """Describe the layouts on the graph as it is; the nodes are those of the pruned one."""
    pairs, shares = graph.layouts, configurable_shares(graph)
    pruned = PRUNINGS[pruning](graph, hops)
    edge_index = pruned.edges.T[::-1].copy()
    return LayoutInputs(
        opcodes=torch.from_numpy(pruned.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(pruned)),
        edge_index=torch.from_numpy(edge_index),
        configurable=torch.from_numpy(pruned.configurable.copy()),
        shares=torch.from_numpy(shares.astype(np.float32)),
        pair_node=torch.from_numpy(pairs.node),
        pair_tokens=torch.from_numpy(pairs.layouts + np.int8(1)),
        pair_features=torch.from_numpy(describe_layouts(graph, pairs)),
        codebook=pairs,
    )


class LayoutGnn(nn.Module):
    """Scores configurations of pruned layout graphs."""

    def __init__(self, settings: LayoutGnnSettings) -> None:
        super().__init__()
        width = settings.width
        self.width = width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.token = nn.Embedding(vocabulary.NUM_LAYOUT_TOKENS, TOKEN_WIDTH)
        self.node = Mlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        tokens = vocabulary.NUM_LAYOUT_FEATURES * TOKEN_WIDTH
        self.pair = Mlp(width + tokens + len(FEATURES), width, width)
        self.blocks = nn.ModuleList(BothWaysBlock(width) for _ in range(settings.blocks))
        self.readout = Mlp(width * (1 + NUM_SHARES), width, 1)

    def score_batch(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs): the graphs become one disconnected graph with a common config axis."""
        xs = [self._embed(inputs, configs[:, i]) for i, inputs in enumerate(batch)]
        sizes = [len(x) for x in xs]
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        edges = torch.cat(
            [inputs.edge_index + start for inputs, start in zip(batch, starts, strict=True)], dim=1
        )
        x = torch.cat(xs)  # (nodes of all graphs, configs, width)
        for block in self.blocks:
            x = block(x, edges)
        pooled = [
            self._pool(part, inputs) for part, inputs in zip(x.split(sizes), batch, strict=True)
        ]
        return self.readout(torch.stack(pooled, dim=1)).squeeze(-1)

    def count_values(self, inputs: LayoutInputs) -> int:
        """Nodes times width."""
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: LayoutInputs) -> np.ndarray:
        """(configs,), a chunk of configurations at a time."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.codebook.codes))[:, None]
        chunks = [
            self.score_batch([inputs], rows[first : first + step])
            for first in range(0, len(rows), step)
        ]
        return torch.cat(chunks)[:, 0].cpu().numpy()

    def _embed(self, inputs: LayoutInputs, configs: np.ndarray) -> Tensor:
        """x (nodes, configs, width) before the convolutions."""
        nodes = self.node(torch.cat([self.opcode(inputs.opcodes), inputs.numeric], dim=-1))
        # Only the pairs that these configurations use: (pairs used,), (configurable, configs)
        pair_of = torch.from_numpy(inputs.codebook.pairs(configs).T).to(inputs.pair_node.device)
        used, index = torch.unique(pair_of, return_inverse=True)
        of_pair = nodes[inputs.configurable[inputs.pair_node[used]]]
        tokens = self.token(inputs.pair_tokens[used].long()).flatten(1)
        pairs = self.pair(torch.cat([of_pair, tokens, inputs.pair_features[used]], dim=-1))
        x = nodes[:, None].expand(-1, len(configs), -1)
        return x.index_add(0, inputs.configurable, pairs[index])

    def _pool(self, x: Tensor, inputs: LayoutInputs) -> Tensor:
        """(configs, width * 3): the mean over nodes, and over configurable ones by their shares."""
        weighted = torch.einsum("ncw,ns->csw", x[inputs.configurable], inputs.shares)
        return torch.cat([x.mean(dim=0), weighted.flatten(1)], dim=-1)
