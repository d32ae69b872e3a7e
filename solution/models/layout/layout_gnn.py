"""A graph net for layouts that computes every distinct value of a node once.

    node features ──────────────┐
    (node, layout) pairs ── MLP ┴─▶ colours 0 ─▶ rounds of convolution ─▶ colours k
                                 score ◀─ MLP ◀─ standardised over configurations ◀─ sums

A *colour* is a distinct value of a node: it stands for all configurations in which the layouts
around the node, and so its value, are the same. Candidate configurations agree in most layouts, so
there are few colours (solution.models.layout.colour_refinement). A score also depends on the
graph's other candidates: on how frequent layouts are (solution.features.layout.frequency), and on
the mean and standard deviation of the candidates' sums. A training step compares a sample of the
candidates, a prediction all of them; their order has no effect.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.domain.neighbours import offsets
from solution.features.layout.tensors import CONFLICTS
from solution.features.nodes import NUM_NUMERIC
from solution.features.preparation import PRUNINGS
from solution.models.base import RankerSettings
from solution.models.layout.colour_refinement import (
    NUM_SHARES,
    Colours,
    Round,
    Structure,
    find_pooling,
)
from solution.models.layout.compiled import CompiledRound, plan_colours
from solution.models.layout.layout_forward import NUM_PAIR_FEATURES, LayoutForward, describe_graph
from solution.models.nets.devices import send
from solution.models.nets.forward import select
from solution.models.nets.layers import Mlp, NodeMlp, standardise
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice, check_even_widths

# maximum values of a layer in memory at once in prediction, counted as if none were shared
CHUNK_VALUES = 1 << 22
OPCODE_WIDTH = 16  # length of the vector that embeds an opcode
TOKEN_WIDTH = 4  # length of the vector that embeds one of a layout's 18 numbers
TRAINING = TrainingSettings(  # one graph a step: small steps learn more in the same time
    loss="list_mle",
    epochs=12,
    patience=None,
    learning_rate=2e-3,
    graphs_per_step=1,
    configs_per_graph=96,
    visits=10,
    # maximum number of steps of an epoch; an epoch of hundreds of graphs still visits every graph
    max_steps=1000,
    max_configs=None,
)


@dataclass(frozen=True)
class LayoutGnnSettings(RankerSettings):
    """Settings of the layout net."""

    width: int = 64  # length of the vectors of nodes and of (node, layout) pairs
    rounds: tuple[int, ...] = (48, 48)  # the width after each round of convolution; must be even
    pruning: str = "neighbourhood"  # which nodes are kept: a name in features.preparation.PRUNINGS
    hops: int = 1  # the pruning keeps nodes at most this many edges from a configurable node
    # dropout of the sums over nodes, so that the net cannot memorise configurations by their sums
    dropout: float = 0.3
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        # widths are even because each round returns GELU(u) and GELU(-u)
        check_even_widths("rounds", self.rounds)
        check_choice("pruning", self.pruning, PRUNINGS)

    @property
    def needed_hops(self) -> int | None:
        return self.hops if self.pruning == "neighbourhood" else None

    def build(self, seed: int) -> "LayoutGnnRanker":
        return LayoutGnnRanker(self, seed)


@dataclass(frozen=True)
class LayoutInputs:
    """The layout net's inputs of a graph. A pair is a configurable node with one layout."""

    opcodes: Tensor  # (nodes,) int64: opcode number of each node
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32: numeric node features
    layouts: Tensor  # (layouts, 18) int8 tokens 0 to 6: the distinct layouts of all pairs
    pair_layout: Tensor  # (pairs,) int64: the row of `layouts` that each pair has
    pair_features: Tensor  # (pairs, NUM_PAIR_FEATURES) float32: features, frequency of the layout
    # (distinct configs,) bool: the reference list, whose mean and deviation standardise sums
    listed: Tensor
    structure: Structure


class LayoutGnnRanker(NetRanker[LayoutGnnSettings, LayoutInputs]):
    """The layout net as a Ranker. Scores depend on the reference list (Graph.listed): on how
    frequent layouts are in it, and on the mean and spread of its sums over nodes."""

    scaled_tables = ("numeric", "pair_features")
    scores_beside_a_list = True

    def prepare(self, graph: Graph) -> LayoutInputs:
        return _preparer(self.settings.pruning, self.settings.hops)(graph)

    def make_net(self) -> "LayoutGnn":
        return LayoutGnn(self.settings)

    def in_numpy(self) -> LayoutForward:
        """Return the fitted net as a LayoutForward, without torch; scores differ by rounding."""
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it is asked for its weights")
        state = self.net_.state_dict().items()
        weights = {name: value.float().cpu().numpy() for name, value in state}
        return LayoutForward(dataclasses.asdict(self.settings), weights, self.scalers_)


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[LayoutInputs]:
    return PerGraph(partial(prepare, pruning=pruning, hops=hops))


def prepare(graph: Graph, pruning: str, hops: int) -> LayoutInputs:
    """Return layout_forward.describe_graph's arrays as tensors."""
    arrays = describe_graph(graph, pruning, hops)
    layouts, pair_layout = np.unique(arrays.pair_tokens, axis=0, return_inverse=True)
    return LayoutInputs(
        opcodes=torch.from_numpy(arrays.opcodes),
        numeric=torch.from_numpy(arrays.numeric),
        layouts=torch.from_numpy(layouts),
        pair_layout=torch.from_numpy(pair_layout.reshape(-1)),
        pair_features=torch.from_numpy(arrays.pair_features),
        listed=torch.from_numpy(arrays.listed),
        structure=arrays.structure,
    )


class PairMlp(nn.Module):
    """An MLP (Linear, GELU, Linear) of each (node, layout) pair: the node's vector, the layout's
    embedded tokens and the pair's features. The first layer's matrix products are computed
    once for each node and layout.

    Shapes: nodes (nodes, width), node (pairs,) the node of each pair, layouts (layouts, 18) int8
    tokens, used (pairs,) the layout of each pair, features (pairs, features), table (tokens, token
    width) -> (pairs, width).
    """

    def __init__(self, width: int, token_width: int, features: int) -> None:
        super().__init__()
        self.node = nn.Linear(width, width)
        values = vocabulary.NUM_LAYOUT_FEATURES * token_width + features
        self.layout = nn.Linear(values, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        nodes: Tensor,
        node: Tensor,
        layouts: Tensor,
        used: Tensor,
        features: Tensor,
        table: Tensor,
    ) -> Tensor:
        sizes = [layouts.shape[1] * table.shape[1], features.shape[1]]
        by_token, by_feature = self.layout.weight.split(sizes, dim=1)
        added = functional.embedding(used, self._multiply(layouts, table, by_token))
        added = added + functional.linear(features, by_feature)
        return self.out(functional.gelu(self.node(nodes)[node] + added))

    def _multiply(self, tokens: Tensor, table: Tensor, weights: Tensor) -> Tensor:
        """Return the matrix products (layouts, width) of `weights` (width, 18 x token width) and
        the embedded `tokens` (layouts, 18). They are computed by a one-hot matrix, because the
        gradient of an embedding lookup is slower."""
        numbers = torch.arange(len(table), dtype=tokens.dtype, device=tokens.device)
        is_token = (tokens[..., None] == numbers).flatten(1)
        by_token = weights.unflatten(1, (tokens.shape[1], -1)) @ table.T
        return functional.linear(is_token.to(table.dtype), by_token.flatten(1))


class Receiving(Protocol):
    """The part of a round of message passing that follows the multiplications by weight matrices. A
    colour is a distinct value of a node."""

    # (marked, extras) float32: features of layout constraints, for the node values that have any
    known: Tensor

    def prepare_gradient(self) -> None:
        """Compute in advance the arrays that the backward pass needs."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return node values after a round: kept[parent] + concatenate(GELU(u), GELU(-u)) with u =
        norm(sum of messages + extra). A colour's parent is the colour that its node had in the same
        configuration before the round.

        Shapes: messages (3 x colours before, half), kept (colours before, 2 x half), extra (marked,
        half) -> (colours after, 2 x half).
        """


class DeviceRound:
    """One round of message passing in torch operations, for any device."""

    def __init__(self, links: Round, device: torch.device) -> None:
        self.aggregation = SparseMatrix(links.aggregation, device)
        self.marked, self.known = (send(part, device) for part in links.marks)
        before = links.aggregation.num_columns // 3
        self.parents = SparseMatrix(select(links.parents, before), device)

    def prepare_gradient(self) -> None:
        """Transpose both sparse matrices, which the backward pass multiplies with."""
        self.aggregation.prepare_gradient()
        self.parents.prepare_gradient()

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return the distinct node values after the round; see Receiving.receive."""
        sums = self.aggregation @ messages
        update = norm(sums.index_add_(0, self.marked, extra.to(sums.dtype)))
        positive = functional.gelu(update)
        both = torch.cat([positive, positive - update], dim=-1)  # GELU(-u) = GELU(u) - u
        return both.add_(self.parents @ kept)


class Pooling:
    """Weighted sums of node values after the last round over the nodes of each graph, computed by
    one sparse matrix."""

    def __init__(self, graphs: Sequence[Structure], last: Colours, device: torch.device) -> None:
        self.matrix = SparseMatrix(find_pooling(graphs, last), device)
        self._shape = last.numbers.shape[1], len(graphs)

    def prepare_gradient(self) -> None:
        """Transpose the sparse matrix, which the backward pass multiplies with."""
        self.matrix.prepare_gradient()

    def pool(self, x: Tensor) -> Tensor:
        """Return weighted sums (configs, graphs, NUM_SHARES x width) of x (colours, width)."""
        configs, graphs = self._shape
        pooled = (self.matrix @ x).view(-1, graphs, NUM_SHARES * x.shape[1])
        usual, differences, others = pooled.split([1, configs, configs])
        return usual + differences + others


@dataclass(frozen=True)
class Computation:
    """All index tensors and rounds of a batch; nodes and pairs are numbered through all graphs. A
    colour is a distinct value of a node over configurations."""

    # (colours before the first round,) int64: the node of each of these colours
    nodes: Tensor
    # (configured,) int64: positions, in `nodes`, of the colours whose nodes are configurable
    configured: Tensor
    pairs: Tensor  # (configured,) int64: the (node, layout) pair of each entry of `configured`
    rounds: Sequence[Receiving]
    pooling: Pooling

    def prepare_gradients(self) -> None:
        """Compute in advance the arrays that the backward pass needs."""
        for receiving in self.rounds:
            receiving.prepare_gradient()
        self.pooling.prepare_gradient()


def derive_computation(
    graphs: Sequence[Structure], configs: np.ndarray, rounds: int, device: torch.device
) -> Computation:
    """Return index tensors and rounds for a batch; see colour_refinement.plan_colours."""
    plan = plan_colours(graphs, configs, rounds)
    return Computation(
        nodes=send(plan.nodes, device),
        configured=send(plan.configured, device),
        pairs=send(plan.pairs, device),
        rounds=[make_round(links, device) for links in plan.rounds],
        pooling=Pooling(graphs, plan.last, device),
    )


def make_round(links: Round, device: torch.device) -> Receiving:
    """Return one round of message passing: compiled on a CPU, in torch operations elsewhere."""
    return CompiledRound(links) if device.type == "cpu" else DeviceRound(links, device)


class ColourBlock(nn.Module):
    """A residual graph convolution on the distinct values of nodes (colours).

    x' = S x + [GELU(u), GELU(-u)], u = norm(W x + W_operands mean(operands) + W_consumers
    mean(consumers) + W_e extra + b)

    `extra` has features of layout constraints. Colours are multiplied by weight matrices before the
    round, because they are fewer then. S is the identity if inputs == outputs, else learned.
    Shapes: x (colours before, inputs) -> (colours after, outputs). Sources: GraphSAGE (Hamilton et
    al., 2017), with separate weights; both signs as in CReLU (Shang et al., 2016).
    """

    def __init__(self, inputs: int, outputs: int, extras: int) -> None:
        super().__init__()
        self.weights = nn.Linear(inputs, 3 * (outputs // 2), bias=False)
        self.extra = nn.Linear(extras, outputs // 2)
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs // 2)

    def forward(self, x: Tensor, receiving: Receiving) -> Tensor:
        half = len(self.extra.bias)
        # Each value sums exactly one message to itself, so the bias is added to this message.
        bias = functional.pad(self.extra.bias, (0, 2 * half))
        messages = functional.linear(x, self.weights.weight, bias).view(3 * len(x), half)
        # Features of layout constraints are multiplied only for the few node values that have any.
        extra = functional.linear(receiving.known, self.extra.weight)
        return receiving.receive(messages, self.skip(x), extra, self.norm)


class LayoutGnn(nn.Module):
    """The layout net: score configurations of pruned layout graphs."""

    def __init__(self, settings: LayoutGnnSettings) -> None:
        super().__init__()
        self.width = settings.width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.token = nn.Embedding(vocabulary.NUM_LAYOUT_TOKENS, TOKEN_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, self.width, self.width)
        self.pair = PairMlp(self.width, TOKEN_WIDTH, NUM_PAIR_FEATURES)
        self.blocks = nn.ModuleList(
            ColourBlock(before, after, len(CONFLICTS))
            for before, after in pairwise((self.width, *settings.rounds))
        )
        last = settings.rounds[-1]
        self.dropout = nn.Dropout(settings.dropout)
        self.readout = Mlp(last * NUM_SHARES, last, 1)

    def score_batch(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs), standardised over these configurations."""
        return self._compare(self.pool(batch, configs))

    def plan(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Computation:
        """Return the index tensors of a training step, prepared for its backward pass."""
        computation = self._derive(batch, configs)
        computation.prepare_gradients()
        return computation

    def score_planned(
        self, batch: Sequence[LayoutInputs], configs: np.ndarray, plan: Computation
    ) -> Tensor:
        """Return the scores of score_batch, given the result `plan` of the method plan."""
        return self._compare(self._pool(batch, plan))

    def pool(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Tensor:
        """Return weighted sums (configs, graphs, values), not yet standardised."""
        return self._pool(batch, self._derive(batch, configs))

    def _derive(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Computation:
        structures = [inputs.structure for inputs in batch]
        return derive_computation(structures, configs, len(self.blocks), batch[0].opcodes.device)

    def _pool(self, batch: Sequence[LayoutInputs], computation: Computation) -> Tensor:
        opcodes = torch.cat([inputs.opcodes for inputs in batch])
        numeric = torch.cat([inputs.numeric for inputs in batch])
        nodes = self.node(self.opcode.weight, opcodes, numeric)
        layouts = torch.cat([inputs.layouts for inputs in batch])
        firsts = offsets([len(inputs.layouts) for inputs in batch]).tolist()
        pair_layouts = [inputs.pair_layout + n for inputs, n in zip(batch, firsts, strict=True)]
        # Only the (node, layout) pairs that these configurations use: (configured, ...)
        used = torch.cat(pair_layouts)[computation.pairs]
        features = torch.cat([inputs.pair_features for inputs in batch])[computation.pairs]
        node = computation.nodes[computation.configured]
        pairs = self.pair(nodes, node, layouts, used, features, self.token.weight)
        x = nodes[computation.nodes].index_add(0, computation.configured, pairs.to(nodes.dtype))
        for block, receiving in zip(self.blocks, computation.rounds, strict=True):
            x = block(x, receiving)
        return computation.pooling.pool(x)

    def _compare(self, pooled: Tensor, listed: Tensor | None = None) -> Tensor:
        return self.readout(self.dropout(standardise(pooled, listed=listed))).squeeze(-1)

    def count_values(self, inputs: LayoutInputs) -> int:
        """Return how many values a layer holds for one configuration: nodes times width."""
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: LayoutInputs) -> np.ndarray:
        """Return scores (distinct configs,), computed in chunks of configurations."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.structure.codebook.codes))[:, None]
        chunks = [
            self.pool([inputs], rows[first : first + step]) for first in range(0, len(rows), step)
        ]
        listed = None if inputs.listed.all() else inputs.listed
        return self._compare(torch.cat(chunks), listed)[:, 0].float().cpu().numpy()
