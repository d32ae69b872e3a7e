"""A graph net for layouts that computes every distinct value of a node once.

    node features ──────────────┐
    (node, layout) pairs ── MLP ┴─▶ colours 0 ─▶ rounds of convolution ─▶ colours k
                                 score ◀─ MLP ◀─ standardised over configurations ◀─ sums

A *colour* stands for all configurations in which a node has the same value, because the layouts
around it are the same; candidate configurations agree in most layouts, so colours are few
(solution.models.layout.colour_refinement). A score also depends on the other candidates of the
graph: on how frequent its layouts are (solution.features.layout.frequency), and on the mean and
spread of the candidates' sums. A training step sees a sample of the candidates, a prediction all of
them, in any order.
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

# maximum number of values of a layer in memory at once in prediction; fewer if configurations share
# values
CHUNK_VALUES = 1 << 22
OPCODE_WIDTH = 16
TOKEN_WIDTH = 4
# One graph a step: many small steps learn more in the same time than few large ones.
TRAINING = TrainingSettings(
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
    # dropout of the sums over nodes, against recognising single configurations by their sums
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
    """The layout net's inputs for one graph, as tensors. A pair is a configurable node together
    with one of the layouts that configurations give it."""

    opcodes: Tensor  # (nodes,) int64: opcode number of each node
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32: numeric node features
    layouts: Tensor  # (layouts, 18) int8 tokens 0 to 6: the distinct layouts of all pairs
    pair_layout: Tensor  # (pairs,) int64: the row of `layouts` that each pair has
    # (pairs, NUM_PAIR_FEATURES) float32: features and frequency of each pair's layout
    pair_features: Tensor
    # (distinct configs,) bool: the reference list, whose mean and deviation standardise sums
    listed: Tensor
    structure: Structure


class LayoutGnnRanker(NetRanker[LayoutGnnSettings, LayoutInputs]):
    """The layout net as a Ranker. Its scores depend on the configurations that are scored together:
    on the frequency of layouts in them, and on the mean and spread of their sums over nodes."""

    scaled_tables = ("numeric", "pair_features")
    scores_beside_a_list = True

    def prepare(self, graph: Graph) -> LayoutInputs:
        return _preparer(self.settings.pruning, self.settings.hops)(graph)

    def make_net(self) -> "LayoutGnn":
        return LayoutGnn(self.settings)

    def in_numpy(self) -> LayoutForward:
        """Return the fitted net as a LayoutForward, which predicts without torch. The scores of
        both differ by rounding."""
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it is asked for its weights")
        state = self.net_.state_dict().items()
        weights = {name: value.float().cpu().numpy() for name, value in state}
        return LayoutForward(dataclasses.asdict(self.settings), weights, self.scalers_)


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[LayoutInputs]:
    return PerGraph(partial(prepare, pruning=pruning, hops=hops))


def prepare(graph: Graph, pruning: str, hops: int) -> LayoutInputs:
    """Return the net's inputs for a graph: the arrays of layout_forward as tensors.

    Args:
        pruning: a name in solution.features.preparation.PRUNINGS.
        hops: the pruning keeps nodes at most this many edges from a configurable node.
    """
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
    """An MLP (Linear, GELU, Linear) of each (node, layout) pair.

    Its input is the concatenation of the node's vector, the layout's embedded tokens, and the
    pair's features.

    The products of a node's vector, or of a layout, with the first weights are computed once for
    all pairs of the node or layout.

    Shapes: nodes (nodes, width), node (pairs,) int64 the node of each pair, layouts (layouts, 18)
    int8 tokens, used (pairs,) int64 the layout of each pair, features (pairs, features) of each
    pair, table (tokens, token width) -> (pairs, width).
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
        """Return the products (layouts, width) of the weights with each layout's embedded tokens.

        Args:
            tokens: (layouts, 18) int8 numbers of rows of `table`.
            table: (tokens, token width) embeddings.
            weights: (width, 18 x token width).

        The table is multiplied with the weights of each of the 18 slots once; the sum over slots is
        then one product with a one-hot matrix. An embedding lookup would be slower, because its
        gradient adds up a row for each lookup.
        """
        numbers = torch.arange(len(table), dtype=tokens.dtype, device=tokens.device)
        is_token = (tokens[..., None] == numbers).flatten(1)
        by_token = weights.unflatten(1, (tokens.shape[1], -1)) @ table.T
        return functional.linear(is_token.to(table.dtype), by_token.flatten(1))


class Receiving(Protocol):
    """One round of message passing, after the products with the net's weights have been computed.
    The "colours before" and "colours after" are the distinct node values before and after the
    round."""

    # (marked, extras) float32: features of layout constraints, for the node values that have any
    known: Tensor

    def prepare_gradient(self) -> None:
        """Compute in advance what the backward pass needs."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return the node values after a round: kept[parent] + concatenate(GELU(u), GELU(-u)).

        Here u = norm(sum of messages + extra). A colour is one of the distinct values of a node;
        its parent is the colour that the same node and configuration had before the round.

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
    """Sum node values after the last round over the nodes of each graph, by one sparse matrix."""

    def __init__(self, graphs: Sequence[Structure], last: Colours, device: torch.device) -> None:
        self.matrix = SparseMatrix(find_pooling(graphs, last), device)
        self._shape = last.numbers.shape[1], len(graphs)

    def prepare_gradient(self) -> None:
        """Transpose the sparse matrix, which the backward pass multiplies with."""
        self.matrix.prepare_gradient()

    def pool(self, x: Tensor) -> Tensor:
        """Return weighted sums over nodes (configs, graphs, NUM_SHARES x width). `x`: (colours,
        width) the distinct node values after the last round."""
        configs, graphs = self._shape
        pooled = (self.matrix @ x).view(-1, graphs, NUM_SHARES * x.shape[1])
        usual, differences, others = pooled.split([1, configs, configs])
        return usual + differences + others


@dataclass(frozen=True)
class Computation:
    """All index tensors and rounds that the net needs to compute a batch of graphs. Nodes are
    numbered consecutively over the graphs of the batch, and so are (node, layout) pairs. "Colours
    0" are the distinct node values before the first round."""

    nodes: Tensor  # (colours 0,) int64: the node that each distinct value belongs to
    configured: Tensor  # (configured,) int64: indices of the values of configurable nodes
    pairs: Tensor  # (configured,) int64: the (node, layout) pair of each value in `configured`
    rounds: Sequence[Receiving]
    pooling: Pooling

    def prepare_gradients(self) -> None:
        """Compute in advance what the backward pass needs."""
        for receiving in self.rounds:
            receiving.prepare_gradient()
        self.pooling.prepare_gradient()


def derive_computation(
    graphs: Sequence[Structure], configs: np.ndarray, rounds: int, device: torch.device
) -> Computation:
    """Return the index tensors and rounds for a batch of graphs.

    Args:
        configs: (configs, graphs); column g has the rows of graph g's codebook codes to score.
        rounds: number of rounds of message passing.
    """
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

    x' = S x + [GELU(u), GELU(-u)]
    u = norm(W x + W_operands mean(operands) + W_consumers mean(consumers) + W_e extra + b)

    `extra` has features of layout constraints. The weights multiply the colours before the round,
    because these are fewer than the colours after the round. The output has twice as many values as
    u: GELU(u) and GELU(-u). S is the identity if inputs == outputs, otherwise learned.

    Shapes: x (colours before, inputs) -> (colours after, outputs).
    Source: GraphSAGE (Hamilton et al., 2017), with separate weights for operands and consumers;
    both signs as in CReLU (Shang et al., 2016). Colours: solution.models.layout.colour_refinement.
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
        """Return scores (configs, graphs); sums are standardised over the given configurations.
        `configs`: (configs, graphs); column g has indices of graph g's distinct configurations."""
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
        """Return weighted sums over nodes (configs, graphs, values) of each configuration, not yet
        standardised over configurations. The graphs are computed together, as one disconnected
        graph."""
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
        """Return scores (distinct configs,); node values are summed one chunk of configurations at
        a time."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.structure.codebook.codes))[:, None]
        chunks = [
            self.pool([inputs], rows[first : first + step]) for first in range(0, len(rows), step)
        ]
        listed = None if inputs.listed.all() else inputs.listed
        return self._compare(torch.cat(chunks), listed)[:, 0].float().cpu().numpy()
