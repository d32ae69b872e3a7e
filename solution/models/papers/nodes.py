"""Which nodes of a layout graph a published net looks at, and the numbers that it is given.

Graphs have up to 43,615 nodes, and the nets of before the competition took a random part of them:

    pruning    all but the neighbourhood of the configurable nodes is cut off, once for all
    trained    random nodes that are kept at a step, others at each
    scored     nodes that are kept for predicting, always the same ones

Nodes kept for predicting are drawn by a hash of what is around each, so their numbers change
nothing. Nodes that look alike are kept together or not at all.
"""

import dataclasses
import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.features.pruning import PRUNINGS
from solution.models.base import RankerSettings
from solution.models.layout.colour_refinement import Neighbours, mix_neighbours
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_loop import TrainingSettings
from solution.models.papers.rows import RowInputs, prepare_rows
from solution.models.settings import check_choice

OPCODE_WIDTH = 32
NUM_NUMERIC = vocabulary.NUM_NODE_FEATURES  # the last six are the layout in the program
NUM_LAYOUT = vocabulary.NUM_LAYOUT_FEATURES
HASHED_HOPS = 3  # how far nodes have to look alike
CHUNK_VALUES = 1 << 22  # of a layer that are in memory at once while predicting


@dataclass(frozen=True)
class NodeSettings:
    """Which nodes are looked at."""

    pruning: str = "nothing"  # a name in features.pruning.PRUNINGS
    hops: int = 1  # kept around the configurable nodes
    trained: int | None = None  # random nodes of a graph at each step; None: all
    scored: int | None = None  # nodes of a graph that is predicted; None: all

    def __post_init__(self) -> None:
        check_choice("pruning", self.pruning, PRUNINGS)


@dataclass(frozen=True)
class NodeInputs(RowInputs):
    """A layout graph, or some of its nodes, as tensors."""

    columns: np.ndarray  # (configurable,) int64 the columns of the codes
    keys: np.ndarray  # (nodes,) uint64 a hash of what is around each

    def given(self, configs: np.ndarray) -> Tensor:
        codes = self.codebook.codes[configs][:, self.columns]
        pairs = torch.from_numpy((codes + self.codebook.starts[self.columns]).T)
        return self.pair_tokens[pairs.to(self.pair_tokens.device)]

    def keep(self, nodes: Tensor) -> Self:
        """Only `nodes` (k,) and the edges between them; the configurations stay."""
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
        )


def prepare_nodes(graph: Graph, settings: NodeSettings) -> NodeInputs:
    """Prune the graph and describe its nodes; kept as long as the graph."""
    return _preparer(settings.pruning, settings.hops)(graph)


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[NodeInputs]:
    return PerGraph(partial(_prepare, pruning=pruning, hops=hops))


def _prepare(graph: Graph, pruning: str, hops: int) -> NodeInputs:
    pruned = PRUNINGS[pruning](graph, hops)
    rows = prepare_rows(pruned)
    return NodeInputs(
        **{field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)},
        columns=np.arange(len(pruned.configurable)),
        keys=hash_nodes(pruned),
    )


def hash_nodes(graph: Graph) -> np.ndarray:
    """A hash (nodes,) uint64 of each node's own features and of those around it."""
    is_configurable = np.zeros(graph.num_nodes, np.float32)
    is_configurable[graph.configurable] = 1
    rows = np.column_stack([graph.node_features, graph.node_opcodes, is_configurable])
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8) for row in rows.astype(np.float32)]
    keys = np.array([int.from_bytes(d.digest(), "little") for d in digests], np.uint64)[:, None]
    consumer, producer = graph.edges.T
    operands = Neighbours.of(consumer, producer, graph.num_nodes)
    consumers = Neighbours.of(producer, consumer, graph.num_nodes)
    for _ in range(HASHED_HOPS):
        keys = mix_neighbours(keys, operands, consumers)
    return keys[:, 0]


def choose_by_contents(keys: np.ndarray, count: int, preferred: np.ndarray) -> np.ndarray:
    """At most `count` nodes (k,) int64 in order, the preferred ones (nodes,) bool first.

    Nodes with the same of `keys` (nodes,) come together; those that do not fit are passed over. If
    none fit, the fewest that are alike are taken.
    """
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


def choose_at_random(num_nodes: int, count: int, preferred: np.ndarray) -> np.ndarray:
    """`count` random nodes (k,) int64 in order, the preferred ones (nodes,) bool first."""
    order = torch.rand(num_nodes).numpy() + ~preferred
    return np.sort(np.argpartition(order, count)[:count])


class NodeRows(nn.Module):
    """A row for every node of every configuration: (nodes, configs, width).

    What the configuration says joins the configurable nodes as 18 numbers, -1 ... 5 over 6 and
    moved so that 0 is "not given"; it is 0 at all other nodes. `features` is the number that the
    140 numeric ones are compressed to by a learned product, once for all configurations.
    """

    def __init__(self, width: int, features: int | None = None) -> None:
        super().__init__()
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.compress = nn.Linear(NUM_NUMERIC, features) if features else nn.Identity()
        self.node = nn.Linear(OPCODE_WIDTH + (features or NUM_NUMERIC), width)
        self.layout = nn.Linear(NUM_LAYOUT, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, inputs: NodeInputs, given: Tensor) -> Tensor:
        numeric = torch.cat([inputs.numeric, _as_numbers(inputs.tokens)], dim=-1)
        nodes = self.node(torch.cat([self.opcode(inputs.opcodes), self.compress(numeric)], dim=-1))
        rows = nodes[:, None].expand(-1, given.shape[1], -1)
        rows = rows.index_add(0, inputs.configurable, self.layout(given))
        return self.out(functional.gelu(rows))


def layout_numbers(inputs: NodeInputs, configs: np.ndarray) -> Tensor:
    """The layouts (configurable, len(configs), 18) float32 as NodeRows takes them."""
    return _as_numbers(inputs.given(configs))


def _as_numbers(tokens: Tensor) -> Tensor:
    return tokens.float() / vocabulary.MAX_RANK


class NodeRankerSettings(RankerSettings):
    """The settings of a net that may look at some nodes only; a subclass has them as fields."""

    nodes: NodeSettings
    training: TrainingSettings

    @property
    def needed_hops(self) -> int | None:
        return self.nodes.hops if self.nodes.pruning == "neighbourhood" else None


Settings = TypeVar("Settings", bound=NodeRankerSettings)
Inputs = TypeVar("Inputs", bound=NodeInputs)


class NodeRanker(NetRanker[Settings, Inputs]):
    """The Ranker around a NodeNet."""

    scaled_tables: ClassVar[tuple[str, ...]] = ("numeric",)

    def prepare(self, graph: Graph) -> Any:
        return prepare_nodes(graph, self.settings.nodes)


class NodeNet(nn.Module):
    """A RankingNet that scores a graph at a time; a subclass says how.

    With `heads` its nodes attend to each other.
    """

    def __init__(self, nodes: NodeSettings, width: int, heads: int = 0) -> None:
        super().__init__()
        self.nodes = nodes
        self.width = width
        self.heads = heads

    @property
    def limit(self) -> int | None:
        """How many nodes of a graph are looked at now."""
        return self.nodes.trained if self.training else self.nodes.scored

    @abstractmethod
    def score(self, inputs: Any, configs: np.ndarray) -> Tensor:
        """The scores (len(configs),) of configurations of the nodes that `take` chose."""

    def preferred(self, inputs: Any) -> np.ndarray:
        """The nodes (nodes,) bool that are kept before others."""
        return np.zeros(len(inputs.opcodes), bool)

    def take(self, inputs: Any) -> Any:
        """The inputs with the nodes that are looked at now."""
        count, num_nodes = self.limit, len(inputs.opcodes)
        if count is None or count >= num_nodes:
            return inputs
        preferred = self.preferred(inputs)
        if self.training:
            chosen = choose_at_random(num_nodes, count, preferred)
        else:
            chosen = choose_by_contents(inputs.keys, count, preferred)
        return inputs.keep(torch.from_numpy(chosen).to(inputs.opcodes.device))

    def score_batch(self, batch: Sequence[Any], configs: np.ndarray) -> Tensor:
        """(configs, graphs), a graph at a time."""
        scores = [self.score(self.take(item), configs[:, i]) for i, item in enumerate(batch)]
        return torch.stack(scores, dim=1)

    def count_values(self, inputs: Any) -> int:
        """Nodes times width, or the pairs of nodes that attend to each other."""
        num_nodes = min(len(inputs.opcodes), self.limit or len(inputs.opcodes))
        return num_nodes * max(self.width, self.heads * num_nodes)

    @torch.inference_mode()
    def score_graph(self, inputs: Any) -> np.ndarray:
        """(configs,), a chunk of configurations at a time."""
        self.eval()
        taken = self.take(inputs)
        step = max(1, CHUNK_VALUES // self.count_values(taken))
        rows = np.arange(len(inputs.codebook.codes))
        chunks = [self.score(taken, rows[n : n + step]) for n in range(0, len(rows), step)]
        return torch.cat(chunks).float().cpu().numpy()
