"""Graph segment training: gradients through a few parts of a graph, the others from a table.

    segments ─┬─ chosen ─▶ rows ─▶ SAGE blocks ─▶ mean over nodes ─┬─▶ weighted sum ─▶ head ─▶ score
              └─ others ─▶ table, what it last was, half dropped ──┘

A step costs as much as the chosen segments, however large the graph is. While the net predicts,
every segment is computed. Edges between segments are cut, in training and in predicting alike.
When the net is trained, all embeddings are computed again, and the head alone is tuned on them.

Memory: the table is bounded by `table_megabytes`, and forgets what newer entries displace; tuning
holds one embedding for every configuration that was learned from (see max_configs).

Source: Cao et al., "Learning Large Graph Property Prediction via Graph Segment Training", NeurIPS
2023 (arXiv 2305.12322), and its published code, which for TpuGraphs has segments of up to 1,000
consecutive nodes, three SAGE layers, 32 configurations of a graph in a step, one chosen segment,
p = 0.5 and a pairwise hinge. What differs:
- there a segment has a score, the graph their sum, and so no head to tune; here, as in the paper's
  other net, embeddings are joined (weighted by their nodes, so as in the mean over the graph);
- an entry that the table does not know counts as 0 there; here its segment is also weighted as one
  that is always dropped, so that the expectation holds from the first step;
- METIS divides by default; its code for TpuGraphs takes consecutive nodes ("topological" here);
- blocks weigh messages of operands and consumers apart and have a norm (BothWaysBlock), not PReLU.
That segments of one graph could lie on several GPUs is an outlook of a student report (rank 107 of
616), which expects no better scores of it. It is not done: a step computes one segment, and several
GPUs fit several models (solution.training.executors.local).
Where it is silent (what bounds the table, which numbers METIS sees): above, and
solution.papers.segments.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.features.pruning import keep_neighbourhood
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import BothWaysBlock
from solution.models.nets.devices import send, take_rows
from solution.models.nets.layers import Mlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.ranking_net import Example
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.papers.embedding_table import EmbeddingTable, name_graph
from solution.papers.rows import RowInputs, Rows, prepare_rows
from solution.papers.segments import PARTITIONS, divide
from solution.system.report import Report, silent


@dataclass(frozen=True)
class Segment(RowInputs):
    """One segment as a graph of its own."""

    columns: np.ndarray  # (configurable,) positions among the configurable nodes of the codebook

    def given(self, configs: np.ndarray) -> Tensor:
        pairs = self.codebook.pairs(configs)[:, self.columns].T
        return self.pair_tokens[send(pairs, self.pair_tokens.device)].long()


@dataclass(frozen=True)
class SegmentedInputs(RowInputs):
    """A graph without edges between segments, and all else sorted by segment.

    pair_tokens is int8 here.
    """

    key: int  # names the graph in the table
    columns: np.ndarray  # (configurable,) as in Segment
    bounds: np.ndarray  # (3, segments + 1) where nodes, edges and configurable nodes begin

    @property
    def sizes(self) -> np.ndarray:
        """The nodes (segments,) of each segment."""
        return np.diff(self.bounds[0])

    @property
    def shares(self) -> Tensor:
        """The share (segments,) float32 of the graph's nodes that each segment has."""
        return torch.from_numpy(self.sizes / self.sizes.sum()).float()

    def segment(self, number: int) -> Segment:
        """One of its segments."""
        nodes, edges, configurable = (
            slice(int(first), int(last)) for first, last in self.bounds[:, number : number + 2]
        )
        return Segment(
            opcodes=self.opcodes[nodes],
            numeric=self.numeric[nodes],
            tokens=self.tokens[nodes],
            pair_tokens=self.pair_tokens,
            edge_index=self.edge_index[:, edges] - nodes.start,
            configurable=self.configurable[configurable] - nodes.start,
            codebook=self.codebook,
            columns=self.columns[configurable],
        )


def prepare_segments(
    graph: Graph, hops: int | None, partition: str, max_nodes: int | None
) -> SegmentedInputs:
    """Prune, divide, cut the edges between segments, and sort everything by segment."""
    pruned = graph if hops is None else keep_neighbourhood(graph, hops)
    segments = divide(pruned, partition, max_nodes)
    order = np.concatenate(segments)
    position = np.argsort(order)
    number = np.repeat(np.arange(len(segments)), [len(segment) for segment in segments])[position]
    of_edge = number[pruned.edges[:, 0]]
    inside = np.flatnonzero(of_edge == number[pruned.edges[:, 1]])
    inside = inside[np.argsort(of_edge[inside], kind="stable")]
    of_column = number[pruned.configurable]
    columns = np.argsort(of_column, kind="stable")
    rows = prepare_rows(
        dataclasses.replace(
            pruned,
            node_features=pruned.node_features[order],
            node_opcodes=pruned.node_opcodes[order],
            edges=position[pruned.edges[inside]],
            configurable=position[pruned.configurable],
            summed=None,
        )
    )
    counts = [np.bincount(n, minlength=len(segments)) for n in (number, of_edge[inside], of_column)]
    values = {f.name: getattr(rows, f.name) for f in dataclasses.fields(rows)}
    values["configurable"] = rows.configurable[torch.from_numpy(columns)]
    values["pair_tokens"] = rows.pair_tokens.to(torch.int8)  # the only ones that grow with layouts
    return SegmentedInputs(
        **values,
        key=name_graph(*graph.key),
        columns=columns,
        bounds=np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0))),
    )


CHUNK_VALUES = 1 << 22  # of a layer, while predicting


@dataclass(frozen=True)
class SegmentSettings(RankerSettings):
    """Settings of segment training."""

    width: int = 128
    rounds: int = 3  # of convolution
    hops: int | None = 1  # kept around the configurable nodes; None: the whole graph
    partition: str = "metis"  # a name in solution.papers.segments.PARTITIONS
    # Of a segment. None: one segment holds the whole graph, which is training on full graphs.
    max_nodes: int | None = 1000
    chosen: int | None = 1  # segments that gradients go through in a step; None: all
    kept: float = 0.5  # p, the share of the stale embeddings that are not dropped
    table_megabytes: int | None = 256  # None: no table; the others are computed, without gradients
    head_epochs: int = 10  # of tuning the head; 0: it is not
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(configs_per_graph=32)
    )

    def __post_init__(self) -> None:
        check_choice("partition", self.partition, PARTITIONS)

    @property
    def needed_hops(self) -> int | None:
        return self.hops

    def build(self, seed: int) -> "SegmentRanker":
        """Make a ranker that is not fitted yet."""
        return SegmentRanker(self, seed)


class SegmentRanker(NetRanker[SegmentSettings, SegmentedInputs]):
    """Segment training as a Ranker."""

    scaled_tables = ("numeric",)

    def prepare(self, graph: Graph) -> SegmentedInputs:
        settings = self.settings
        return _preparer(settings.hops, settings.partition, settings.max_nodes)(graph)

    def make_net(self) -> "SegmentNet":
        return SegmentNet(self.settings)

    def finish(
        self,
        net: nn.Module,
        examples: Sequence[Example[SegmentedInputs]],
        validation: Sequence[Example[SegmentedInputs]],
        report: Report,
    ) -> None:
        """Refresh all embeddings and tune the head on them."""
        assert isinstance(net, SegmentNet)
        if self.settings.head_epochs == 0:
            return
        training = self.settings.training
        refreshed: list[Example[Tensor]] = []
        for example in (*examples, *validation):
            report(training.epochs, training.epochs, f"embedding {example.key[1]} anew")
            embedded = net.embed_all(example.inputs)
            refreshed.append(Example(embedded, example.runtimes, example.key))
        learned, held_out = refreshed[: len(examples)], refreshed[len(examples) :]
        tuning = dataclasses.replace(training, epochs=self.settings.head_epochs)
        train(HeadNet(net.head), learned, held_out, tuning, self.seed, silent)


@cache
def _preparer(hops: int | None, partition: str, max_nodes: int | None) -> PerGraph[SegmentedInputs]:
    return PerGraph(partial(prepare_segments, hops=hops, partition=partition, max_nodes=max_nodes))


class SegmentNet(nn.Module):
    """Scores configurations of layout graphs that are divided into segments."""

    def __init__(self, settings: SegmentSettings) -> None:
        super().__init__()
        width, megabytes = settings.width, settings.table_megabytes
        self.width, self.chosen, self.kept = width, settings.chosen, settings.kept
        self.rows = Rows()
        self.encoder = nn.Linear(Rows.width, width)
        self.blocks = nn.ModuleList(BothWaysBlock(width) for _ in range(settings.rounds))
        self.head = Mlp(width, width, 1)
        self.table = None if megabytes is None else EmbeddingTable(width, megabytes << 20)

    def score_batch(self, batch: Sequence[SegmentedInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs), a graph at a time; in training, from a few segments of each."""
        embed = self._embed_chosen if self.training else self._embed
        embedded = [embed(inputs, configs[:, i]) for i, inputs in enumerate(batch)]
        return self.head(torch.stack(embedded, dim=1)).squeeze(-1)

    def count_values(self, inputs: SegmentedInputs) -> int:
        """Nodes of the largest segments that may be chosen together, times width."""
        return int(np.sort(inputs.sizes)[::-1][: self.chosen].sum()) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: SegmentedInputs) -> np.ndarray:
        """(configs,)."""
        self.eval()
        return self.head(self.embed_all(inputs)).squeeze(-1).float().cpu().numpy()

    @torch.no_grad()
    def embed_all(self, inputs: SegmentedInputs) -> Tensor:
        """The embeddings (configs, width) of a graph in all configurations, some at a time."""
        step = max(1, CHUNK_VALUES // (int(inputs.sizes.max()) * self.width))
        rows = np.arange(len(inputs.codebook.codes))
        chunks = [rows[first : first + step] for first in range(0, len(rows), step)]
        return torch.cat([self._embed(inputs, chunk) for chunk in chunks])

    def memory(self) -> dict[str, Tensor]:
        """The table, to go on from later."""
        return {} if self.table is None else self.table.state()

    def recall(self, memory: dict[str, Tensor]) -> None:
        """Go on from what `memory` gave."""
        if self.table is not None:
            self.table.restore(memory)

    def embed_segment(self, inputs: SegmentedInputs, number: int, configs: np.ndarray) -> Tensor:
        """The mean (configs, width) over the nodes of a segment."""
        segment = inputs.segment(number)
        x = functional.gelu(self.encoder(self.rows(segment, configs)))
        for block in self.blocks:
            x = block(x, segment.edge_index)
        return x.mean(dim=0)

    def _embed(self, inputs: SegmentedInputs, configs: np.ndarray) -> Tensor:
        """All segments: (configs, width)."""
        total = torch.zeros(len(configs), self.width, device=inputs.numeric.device)
        for number, share in enumerate(inputs.shares.tolist()):
            total = total + share * self.embed_segment(inputs, number, configs)
        return total

    def _embed_chosen(self, inputs: SegmentedInputs, configs: np.ndarray) -> Tensor:
        """Some segments, and what is known of the others: (configs, width).

        The sum over segments of share * weight * embedding.
        """
        chosen = torch.randperm(len(inputs.sizes))[: self.chosen]
        known, others = self._recollect(inputs, configs, chosen)
        kept = 1.0 if self.table is None else self.kept
        weights = (inputs.shares * draw_weights(known, chosen, kept)).to(inputs.numeric.device)
        total = (weights[..., None] * others.to(weights.device)).sum(dim=1)
        for number in chosen.tolist():
            embedded = self.embed_segment(inputs, number, configs)
            total = total + weights[:, number, None] * embedded
            if self.table is not None:
                self.table.write(inputs.key, configs, number, embedded)
        return total

    @torch.no_grad()
    def _recollect(
        self, inputs: SegmentedInputs, configs: np.ndarray, chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Which embeddings are known (configs, segments), and all but the chosen, else 0."""
        count = len(inputs.sizes)
        if self.table is not None:
            known, others = self.table.read(inputs.key, configs, count)
            others[:, chosen] = 0
            return known, others
        shape = (len(configs), count)
        others = torch.zeros(*shape, self.width, device=inputs.numeric.device)
        for number in set(range(count)) - set(chosen.tolist()):
            others[:, number] = self.embed_segment(inputs, number, configs).float()
        torch.clear_autocast_cache()  # what it keeps of the weights has no gradient
        return torch.ones(shape, dtype=torch.bool), others


def draw_weights(known: Tensor, chosen: Tensor, kept: float) -> Tensor:
    """Stale embedding dropout: what each segment counts, so that 1 is what is expected of it.

    With J segments, S of them chosen at random, and p = kept: a chosen one p + (1 - p) J / S, any
    other 1 with probability p, else 0. One that is not `known` counts 0 unless it is chosen, then
    J / S.

    Shapes: known (configs, J) bool, chosen (S,) -> (configs, J).
    Source: the paper's stale embedding dropout, but for those not known.
    """
    spread = known.shape[1] / len(chosen)
    weights = (known & (torch.rand(known.shape) < kept)).float()
    weights[:, chosen] = torch.where(known[:, chosen], kept + (1 - kept) * spread, spread)
    return weights


class HeadNet(nn.Module):
    """The head alone, on embeddings (distinct configs, width) of graphs that stay as they are."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def score_batch(self, batch: Sequence[Tensor], configs: np.ndarray) -> Tensor:
        """(configs, graphs)."""
        return self.head(torch.stack(take_rows(batch, configs), dim=1)).squeeze(-1)

    def count_values(self, inputs: Tensor) -> int:
        """The width."""
        return inputs.shape[1]

    @torch.inference_mode()
    def score_graph(self, inputs: Tensor) -> np.ndarray:
        """(configs,)."""
        return self.head(inputs).squeeze(-1).float().cpu().numpy()
