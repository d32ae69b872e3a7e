"""Graph segment training: gradients through a few segments of a graph, cached embeddings elsewhere.

    segments ─┬─ chosen ─▶ rows ─▶ SAGE blocks ─▶ mean over nodes ─┬─▶ weighted sum ─▶ head ─▶ score
              └─ others ─▶ cached embeddings, half dropped ────────┘

A step costs as much as the chosen segments, however large the graph is. At inference every segment
is computed. Edges between segments are cut, in training and at inference alike. After the net's
training, all embeddings are computed again, and only the head is fine-tuned on them.

Memory: the table of cached embeddings is bounded by `table_megabytes`, and new entries displace old
ones. Fine-tuning holds one embedding for every training configuration (see max_configs).

Source: Cao et al., "Learning Large Graph Property Prediction via Graph Segment Training", NeurIPS
2023 (arXiv 2305.12322), and its published code, which for TpuGraphs has segments of up to 1,000
consecutive nodes, three SAGE layers, 32 configurations of a graph in a step, one chosen segment,
p = 0.5 and a pairwise hinge loss. Differences:
- In the code each segment has a score, and the graph's score is their sum, so there is no head to
  fine-tune. Here, as in the paper's other net, the embeddings of segments are averaged, weighted by
  their nodes.
- In the code an embedding that is missing in the table counts as 0. Here its segment also gets the
  weight of a segment whose cached embedding is always dropped, so that the expected value is right
  from the first step.
- The default partition is METIS; the code for TpuGraphs takes consecutive nodes ("topological").
- Blocks have separate weights for messages of operands and of consumers, and a norm
  (BothWaysBlock), not PReLU.
A student report (rank 107 of 616) suggests computing segments of one graph on several GPUs, and
expects no better scores from it. That is not implemented: a step computes one segment, and several
GPUs fit several models (solution.training.executors.local).
The paper leaves open how the table is bounded (see above), and what METIS reads (see
solution.papers.segments).
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain.codebook import mix
from solution.domain.graph import Graph, PerGraph
from solution.features.preparation import keep_neighbourhood
from solution.models.base import RankerSettings
from solution.models.nets.convolutions import BothWaysBlock
from solution.models.nets.devices import take_rows
from solution.models.nets.layers import Mlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.ranking_net import Example
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice
from solution.papers.rows import RowInputs, Rows, prepare_rows
from solution.papers.segments import PARTITIONS, divide_nodes
from solution.system.report import Report, silent


class EmbeddingTable:
    """A cache of embeddings (width,) float32 by (graph, configuration, segment), of at most
    `max_bytes`. It is direct-mapped: a key has one slot, so new entries displace old ones."""

    def __init__(self, width: int, max_bytes: int) -> None:
        self.capacity = max(1, max_bytes // (4 * width + 8))
        # hash of each slot's (graph, configuration, segment), 0 if empty; zeros take no memory yet
        self._keys = np.zeros(self.capacity, np.uint64)
        self._values = np.zeros((self.capacity, width), np.float32)

    def read(self, graph: int, configs: np.ndarray, segments: int) -> tuple[Tensor, Tensor]:
        """Return a graph's embeddings in the configurations `configs` (k,): a mask (k, segments)
        bool, True if cached, and the values (k, segments, width) float32, 0 if not cached."""
        keys = _hash(graph, configs[:, None], np.arange(segments))
        slots = self._slots(keys)
        known = self._keys[slots] == keys
        values = np.where(known[..., None], self._values[slots], np.float32(0))
        return torch.from_numpy(known), torch.from_numpy(values)

    def write(self, graph: int, configs: np.ndarray, segment: int, values: Tensor) -> None:
        """Cache the embeddings (k, width) of one segment in each of k configurations."""
        keys = _hash(graph, configs, np.array([segment]))
        slots = self._slots(keys)
        # If two of the embeddings have the same slot, both assignments keep the last one.
        self._keys[slots] = keys
        self._values[slots] = values.detach().float().cpu().numpy()

    def state(self) -> dict[str, Tensor]:
        """Return the cached embeddings for a checkpoint."""
        used = np.flatnonzero(self._keys)
        return {
            "slots": torch.from_numpy(used),
            "keys": torch.from_numpy(self._keys[used].view(np.int64)),
            "values": torch.from_numpy(self._values[used]),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the cached embeddings from the `state` of a table of the same size."""
        slots = state["slots"].numpy()
        self._keys[slots] = state["keys"].numpy().view(np.uint64)
        self._values[slots] = state["values"].numpy()

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        # The lowest bit of a key does not help to choose a slot, because all keys are odd.
        return ((keys >> np.uint64(1)) % np.uint64(self.capacity)).astype(np.int64)


def name_graph(collection: str, name: str) -> int:
    """Return a 64-bit hash of a graph's collection and name."""
    digest = hashlib.blake2b(f"{collection}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _hash(graph: int, configs: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Return 64-bit hashes of (graph, configuration, segment), never 0."""
    key = mix(np.uint64(graph) ^ mix(configs.astype(np.uint64)))
    return mix(key ^ mix(segments.astype(np.uint64))) | np.uint64(1)


@dataclass(frozen=True)
class SegmentedInputs(RowInputs):
    """A graph without edges between segments; arrays are sorted by segment."""

    # number of the graph in the keys of EmbeddingTable
    key: int
    # (3, segments + 1): where each segment's nodes, edges and configurable nodes (rows) begin
    bounds: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Number of nodes (segments,) of each segment."""
        return np.diff(self.bounds[0])

    @property
    def shares(self) -> Tensor:
        """Share (segments,) float32 of the graph's nodes in each segment."""
        return torch.from_numpy(self.sizes / self.sizes.sum()).float()

    def segment(self, number: int) -> RowInputs:
        """Return the inputs of the segment with this number."""
        nodes, edges, configurable = (
            slice(int(first), int(last)) for first, last in self.bounds[:, number : number + 2]
        )
        return RowInputs(
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
    """Return the pruned graph without edges between segments, sorted by segment."""
    pruned = graph if hops is None else keep_neighbourhood(graph, hops)
    segments = divide_nodes(pruned, partition, max_nodes)
    # Renumber nodes segment by segment (`position`: new number, `number`: segment of each node),
    # keep only edges inside a segment, and sort edges and configurable nodes by segment.
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
    values["columns"] = columns
    # int8 to save memory: only this array grows with the number of distinct layouts
    values["pair_tokens"] = rows.pair_tokens.to(torch.int8)
    return SegmentedInputs(
        **values,
        key=name_graph(*graph.key),
        bounds=np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0))),
    )


# maximum number of values of a layer in memory at once at inference
CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class SegmentSettings(RankerSettings):
    """Settings of segment training."""

    width: int = 128
    # number of convolutions
    rounds: int = 3
    # nodes within this many edges of a configurable node are kept; None: the whole graph
    hops: int | None = 1
    # a name in solution.papers.segments.PARTITIONS
    partition: str = "metis"
    # maximum number of nodes of a segment; None: one segment is the whole graph (no segmentation)
    max_nodes: int | None = 1000
    chosen: int | None = 1  # number of segments with gradients in a step; None: all
    kept: float = 0.5  # p, the share of the cached embeddings that is not dropped
    # Size of the table of embeddings. None: no table; segments that are not chosen are computed
    # without gradients.
    table_megabytes: int | None = 256
    head_epochs: int = 10  # epochs of fine-tuning the head; 0: it is not fine-tuned
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(configs_per_graph=32)
    )

    def __post_init__(self) -> None:
        check_choice("partition", self.partition, PARTITIONS)

    @property
    def needed_hops(self) -> int | None:
        return self.hops

    def build(self, seed: int) -> "SegmentRanker":
        return SegmentRanker(self, seed)


class SegmentRanker(NetRanker[SegmentSettings, SegmentedInputs]):
    """The Ranker of the net that is trained by segment training."""

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
        """Recompute all embeddings and fine-tune the head on them."""
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
    """A net that scores configurations of layout graphs that are divided into segments."""

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
        """Return scores (configs, graphs); in training, from a few segments of each graph."""
        embed = self._embed_chosen if self.training else self._embed
        embedded = [embed(inputs, configs[:, i]) for i, inputs in enumerate(batch)]
        return self.head(torch.stack(embedded, dim=1)).squeeze(-1)

    def count_values(self, inputs: SegmentedInputs) -> int:
        """Return how many values a layer holds for one configuration, at most: if the largest
        segments are chosen."""
        return int(np.sort(inputs.sizes)[::-1][: self.chosen].sum()) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: SegmentedInputs) -> np.ndarray:
        self.eval()
        return self.head(self.embed_all(inputs)).squeeze(-1).float().cpu().numpy()

    @torch.no_grad()
    def embed_all(self, inputs: SegmentedInputs) -> Tensor:
        """Return the embeddings (configs, width) of a graph in all configurations."""
        step = max(1, CHUNK_VALUES // (int(inputs.sizes.max()) * self.width))
        rows = np.arange(len(inputs.codebook.codes))
        chunks = [rows[first : first + step] for first in range(0, len(rows), step)]
        return torch.cat([self._embed(inputs, chunk) for chunk in chunks])

    def memory(self) -> dict[str, Tensor]:
        """Return the table of cached embeddings, for a checkpoint."""
        return {} if self.table is None else self.table.state()

    def recall(self, memory: dict[str, Tensor]) -> None:
        """Restore the table of cached embeddings from a checkpoint."""
        if self.table is not None:
            self.table.restore(memory)

    def embed_segment(self, inputs: SegmentedInputs, number: int, configs: np.ndarray) -> Tensor:
        """Return the embedding (configs, width) of a segment: the mean over its nodes."""
        segment = inputs.segment(number)
        x = functional.gelu(self.encoder(self.rows(segment, configs)))
        for block in self.blocks:
            x = block(x, segment.edge_index)
        return x.mean(dim=0)

    def _embed(self, inputs: SegmentedInputs, configs: np.ndarray) -> Tensor:
        """Return a graph's embedding (configs, width): the mean over the nodes of all segments."""
        total = torch.zeros(len(configs), self.width, device=inputs.numeric.device)
        for number, share in enumerate(inputs.shares.tolist()):
            total = total + share * self.embed_segment(inputs, number, configs)
        return total

    def _embed_chosen(self, inputs: SegmentedInputs, configs: np.ndarray) -> Tensor:
        """Return the graph's embedding (configs, width), with gradients through chosen segments
        only: the sum over segments of share of nodes * weight (see draw_weights) * embedding."""
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
        """Return segments' embeddings without gradients, cached or (without a table) computed: a
        mask (configs, segments) bool, True if known, and embeddings (configs, segments, width),
        0 for unknown and for chosen segments."""
        count = len(inputs.sizes)
        if self.table is not None:
            known, others = self.table.read(inputs.key, configs, count)
            others[:, chosen] = 0
            return known, others
        shape = (len(configs), count)
        others = torch.zeros(*shape, self.width, device=inputs.numeric.device)
        for number in set(range(count)) - set(chosen.tolist()):
            others[:, number] = self.embed_segment(inputs, number, configs).float()
        # clear autocast's low-precision copies of weights: they were made without gradients, and
        # the chosen segments would reuse them
        torch.clear_autocast_cache()
        return torch.ones(shape, dtype=torch.bool), others


def draw_weights(known: Tensor, chosen: Tensor, kept: float) -> Tensor:
    """Return random weights of segments, with the expected value 1, for stale embedding dropout.

    With J segments, S of them chosen at random, and p = kept, a segment has the weight

        chosen        p + (1 - p) J / S, or J / S if its embedding is not `known`
        not chosen    1 with probability p, else 0; always 0 if its embedding is not `known`

    Shapes: known (configs, J) bool, chosen (S,) -> (configs, J).
    Source: the paper's stale embedding dropout, except for unknown embeddings.
    """
    spread = known.shape[1] / len(chosen)
    weights = (known & (torch.rand(known.shape) < kept)).float()
    weights[:, chosen] = torch.where(known[:, chosen], kept + (1 - kept) * spread, spread)
    return weights


class HeadNet(nn.Module):
    """The head as a net: its inputs for a graph are fixed embeddings (distinct configs, width)."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def score_batch(self, batch: Sequence[Tensor], configs: np.ndarray) -> Tensor:
        return self.head(torch.stack(take_rows(batch, configs), dim=1)).squeeze(-1)

    def count_values(self, inputs: Tensor) -> int:
        return inputs.shape[1]

    @torch.inference_mode()
    def score_graph(self, inputs: Tensor) -> np.ndarray:
        return self.head(inputs).squeeze(-1).float().cpu().numpy()
