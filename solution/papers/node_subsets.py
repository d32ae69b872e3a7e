"""Choose the nodes of a layout graph that a published net sees, and prepare their inputs.

Graphs have up to 43,615 nodes, and published nets learn from a random part of them:

    pruning    keep only the neighbourhood of the configurable nodes, once, in the preparation
    trained    keep random nodes, drawn anew at each training step: evenly, or by their work
    scored     predict from all nodes (the documents drop nodes in training only), or average the
               scores of fixed subsets

The work of a node is its number of arithmetic operations. Subsets are for attention among all pairs
of nodes, whose time is quadratic in the number of nodes. (The memory of attention is bounded
anyway, see solution.models.nets.layers.attend.) Nodes of a subset are drawn by a hash of their
neighbourhood, so the numbering of nodes changes nothing. Nodes with equal hashes are kept or
dropped together.
"""

import dataclasses
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.codebook import mix
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import Neighbours
from solution.features.operations import num_operations
from solution.features.preparation import PRUNINGS
from solution.models.base import RankerSettings
from solution.models.layout.colour_refinement import mix_neighbours
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice, check_size
from solution.papers.rows import RowInputs, prepare_rows

DRAWS = ("evenly", "work")
HASHED_HOPS = 3  # the hash of a node covers the nodes within this many edges


def hash_nodes(graph: Graph) -> np.ndarray:
    """Return a hash (nodes,) uint64 of each node's features and its neighbourhood."""
    is_configurable = np.zeros(graph.num_nodes, np.float32)
    is_configurable[graph.configurable] = 1
    rows = np.column_stack([graph.node_features, graph.node_opcodes, is_configurable])
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8) for row in rows.astype(np.float32)]
    keys = np.array([int.from_bytes(d.digest(), "little") for d in digests], np.uint64)[:, None]
    operands = Neighbours.operands(graph.edges, graph.num_nodes)
    consumers = Neighbours.consumers(graph.edges, graph.num_nodes)
    for _ in range(HASHED_HOPS):
        keys = mix_neighbours(keys, operands, consumers)
    return keys[:, 0]


def choose_by_contents(keys: np.ndarray, count: int, preferred: np.ndarray) -> np.ndarray:
    """Choose at most `count` nodes, `preferred` nodes (nodes,) bool first, in the order of their
    hashes `keys` (nodes,) uint64. Return their numbers (k,) int64, sorted. Nodes with equal hashes
    form a group: a group that does not fit is skipped, and the smallest is taken if none fits."""
    # groups of equal (preferred, key), preferred nodes first; take each group that still fits
    classes, member, sizes = np.unique(
        np.stack([~preferred, keys]).astype(np.uint64), axis=1, return_inverse=True,
        return_counts=True,
    )  # fmt: skip
    taken, left = np.zeros(classes.shape[1], bool), count
    for number, size in enumerate(sizes.tolist()):
        if size <= left:
            taken[number] = True
            left -= size
    if not taken.any():
        taken[np.argmin(sizes)] = True
    return np.flatnonzero(taken[member.ravel()])


def choose_at_random(
    count: int, preferred: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Draw `count` nodes without replacement, evenly or in proportion to `weights` (nodes,); draw
    from the others only after all `preferred` nodes (nodes,) bool. Return the nodes' indices (k,)
    int64 in ascending order; k < count only if there are fewer nodes. Source of the exponential
    keys: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006."""
    if weights is None:
        arrival = torch.rand(len(preferred)).numpy()
    else:
        arrival = torch.empty(len(preferred)).exponential_().numpy() / weights
    return np.sort(np.lexsort((arrival, ~preferred))[:count])


def mix_keys(keys: np.ndarray, number: int) -> np.ndarray:
    """Return keys (nodes,) uint64 hashed by the hash function `number`; unchanged for 0."""
    return keys if number == 0 else mix(keys, number)


OPCODE_WIDTH = 32
# number of node features: 134 in RowInputs.numeric, and 6 of the program's layout in
# RowInputs.tokens
NUM_RAW = vocabulary.NUM_NODE_FEATURES
NUM_LAYOUT = vocabulary.NUM_LAYOUT_FEATURES  # 18 numbers of a configurable node's layout
CHUNK_VALUES = 1 << 22  # maximum number of values of a layer in memory at once at inference
MAX_SUBSETS = 1000


@dataclass(frozen=True)
class NodeSettings:
    """Settings of pruning and of the choice of nodes."""

    pruning: str = "nothing"  # a name in features.preparation.PRUNINGS
    hops: int = 1  # pruning keeps the nodes within this many edges of a configurable node
    trained: int | None = None  # random nodes of a graph at each training step; None: all nodes
    draw: str = "evenly"  # how random nodes are drawn: a name in DRAWS
    scored: int | None = None  # number of nodes of each subset at inference; None: all nodes
    subsets: int = 1  # number of subsets to average over, if `scored` is less than all nodes

    def __post_init__(self) -> None:
        check_choice("pruning", self.pruning, PRUNINGS)
        check_choice("draw", self.draw, DRAWS)
        check_size("subsets", self.subsets, MAX_SUBSETS)


@dataclass(frozen=True)
class NodeInputs(RowInputs):
    """A layout graph, or some of its nodes, as tensors."""

    keys: np.ndarray  # (nodes,) uint64: hash of each node's neighbourhood
    work: np.ndarray  # (nodes,) float64: arithmetic operations of each node, at least one

    def keep(self, nodes: Tensor) -> Self:
        """Return only `nodes` (k,) and the edges between them, for the same configurations."""
        position = torch.full((len(self.opcodes),), -1, device=nodes.device)
        position[nodes] = torch.arange(len(nodes), device=nodes.device)
        edges, configurable = position[self.edge_index], position[self.configurable]
        return dataclasses.replace(
            self,
            opcodes=self.opcodes[nodes],
            numeric=self.numeric[nodes],
            tokens=self.tokens[nodes],
            edge_index=edges[:, (edges >= 0).all(dim=0)],
            configurable=configurable[configurable >= 0],
            columns=self.columns[(configurable >= 0).cpu().numpy()],
            keys=self.keys[nodes.cpu().numpy()],
            work=self.work[nodes.cpu().numpy()],
        )


def prepare_nodes(graph: Graph, settings: NodeSettings) -> NodeInputs:
    """Prune the graph and return a net's inputs, which are cached as long as the graph exists."""
    return _preparer(settings.pruning, settings.hops)(graph)


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[NodeInputs]:
    return PerGraph(partial(_prepare, pruning=pruning, hops=hops))


def _prepare(graph: Graph, pruning: str, hops: int) -> NodeInputs:
    pruned = PRUNINGS[pruning](graph, hops)
    rows = prepare_rows(pruned)
    return NodeInputs(
        **{field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)},
        keys=hash_nodes(pruned),
        work=num_operations(pruned),
    )


class NodeRows(nn.Module):
    """An embedding of every node in every configuration: (nodes, configs, width). A configurable
    node has 18 further inputs: the values v (-1 ... 5) of its layout as (v + 1) / 6, so 0 means
    "not given". `columns`: number of numeric features of a node, with the six of the program's
    layout."""

    def __init__(
        self,
        width: int,
        columns: int = NUM_RAW,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
    ) -> None:
        super().__init__()
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = nn.Linear(OPCODE_WIDTH + columns, width)
        self.layout = nn.Linear(NUM_LAYOUT, width, bias=False)
        self.out = nn.Linear(width, width)
        self.activation = activation

    def forward(self, inputs: NodeInputs, given: Tensor) -> Tensor:
        parts = [self.opcode(inputs.opcodes), inputs.numeric, _as_numbers(inputs.tokens)]
        nodes = self.node(torch.cat(parts, dim=-1))
        rows = nodes[:, None].expand(-1, given.shape[1], -1)
        rows = rows.index_add(0, inputs.configurable, self.layout(given))
        return self.out(self.activation(rows))


def layout_numbers(inputs: NodeInputs, configs: np.ndarray) -> Tensor:
    """Return the layouts of `configs`, scaled to 0 ... 1 as inputs of NodeRows: (configurable,
    len(configs), 18) float32."""
    return _as_numbers(inputs.given(configs))


def _as_numbers(tokens: Tensor) -> Tensor:
    return tokens.float() / vocabulary.MAX_RANK


class NodeRankerSettings(RankerSettings):
    """Settings of a net that may see only some nodes of a graph; a subclass gives `nodes` and
    `training` their values."""

    nodes: NodeSettings
    training: TrainingSettings

    @property
    def needed_hops(self) -> int | None:
        return self.nodes.hops if self.nodes.pruning == "neighbourhood" else None


Settings = TypeVar("Settings", bound=NodeRankerSettings)
Inputs = TypeVar("Inputs", bound=NodeInputs)


class NodeRanker(NetRanker[Settings, Inputs]):
    """A Ranker that trains a NodeNet and ranks by its predictions."""

    scaled_tables: ClassVar[tuple[str, ...]] = ("numeric",)

    def prepare(self, graph: Graph) -> Any:
        return prepare_nodes(graph, self.settings.nodes)


class NodeNet(nn.Module):
    """A RankingNet that scores one graph at a time. `width`: width of the widest layer."""

    def __init__(self, nodes: NodeSettings, width: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.width = width

    @property
    def limit(self) -> int | None:
        """Number of nodes of a graph that the net sees in its mode, training or inference; None:
        all."""
        return self.nodes.trained if self.training else self.nodes.scored

    @abstractmethod
    def score(self, inputs: Any, configs: np.ndarray) -> Tensor:
        """Return the scores (len(configs),) of configurations, from the nodes that `take` chose."""

    def preferred(self, inputs: Any) -> np.ndarray:
        """Return a mask (nodes,) bool of the nodes that `take` chooses first; here none."""
        return np.zeros(len(inputs.opcodes), bool)

    def take(self, inputs: Any, subset: int = 0) -> Any:
        """Return the inputs of the chosen nodes: random in training; at inference the subset
        number `subset`; all inputs if no node is left out."""
        count, num_nodes = self.limit, len(inputs.opcodes)
        if count is None or count >= num_nodes:
            return inputs
        preferred = self.preferred(inputs)
        if self.training:
            weights = inputs.work if self.nodes.draw == "work" else None
            chosen = choose_at_random(count, preferred, weights)
        else:
            chosen = choose_by_contents(mix_keys(inputs.keys, subset), count, preferred)
        return inputs.keep(torch.from_numpy(chosen).to(inputs.opcodes.device))

    def score_batch(self, batch: Sequence[Any], configs: np.ndarray) -> Tensor:
        scores = [self.score(self.take(item), configs[:, i]) for i, item in enumerate(batch)]
        return torch.stack(scores, dim=1)

    def count_values(self, inputs: Any) -> int:
        return min(len(inputs.opcodes), self.limit or len(inputs.opcodes)) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: Any) -> np.ndarray:
        """Return scores (configs,): the mean over the subsets, if not all nodes are used."""
        self.eval()
        is_whole = self.nodes.scored is None or self.nodes.scored >= len(inputs.opcodes)
        count = 1 if is_whole else self.nodes.subsets
        scores = [self._score_subset(self.take(inputs, number)) for number in range(count)]
        return scores[0] if count == 1 else np.stack(scores).mean(axis=0, dtype=np.float32)

    def _score_subset(self, taken: Any) -> np.ndarray:
        step = max(1, CHUNK_VALUES // self.count_values(taken))
        rows = np.arange(len(taken.codebook.codes))
        chunks = [self.score(taken, rows[n : n + step]) for n in range(0, len(rows), step)]
        return torch.cat(chunks).float().cpu().numpy()
