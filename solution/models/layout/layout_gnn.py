"""A graph net for layouts that computes every distinct colour of a node once.

    node features ──────────────┐
    (node, layout) pairs ── MLP ┴─▶ colours 0 ─▶ rounds of convolution ─▶ colours k
                                 score ◀─ MLP ◀─ standardised over configurations ◀─ sums

Candidate configurations agree in most layouts, so most nodes see the same neighbourhood in many of
them (solution.models.layout.colour_refinement). A score also depends on the other candidates of the
graph: on how frequent its layouts are (solution.features.layout.frequency), and on the mean of
their sums. A training step sees a sample of them, a prediction all, in any order.
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
from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.neighbours import offsets
from solution.features.layout import conflicts
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
from solution.models.layout.inputs import NUM_PAIR_FEATURES, describe_graph
from solution.models.layout.layout_forward import LayoutForward
from solution.models.nets.devices import send
from solution.models.nets.layers import Mlp, NodeMlp, standardise
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.sparse_rows import select
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice, check_even_widths

CHUNK_VALUES = 1 << 22  # (configuration, node) values of x in one chunk, if no colours are shared
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
    max_steps=1000,  # of an epoch: with hundreds of graphs each is seen often enough (see the log)
    max_configs=None,
)


@dataclass(frozen=True)
class LayoutGnnSettings(RankerSettings):
    """Settings of the layout net."""

    width: int = 64  # of nodes and pairs
    rounds: tuple[int, ...] = (48, 48)  # the width after each round of convolution; must be even
    pruning: str = "neighbourhood"  # a name in features.pruning.PRUNINGS
    hops: int = 1  # kept around the configurable nodes
    # Dropout of the sums. Without it they soon identify each configuration (overfitting).
    dropout: float = 0.3
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        check_even_widths("rounds", self.rounds)  # half of each width for each sign
        check_choice("pruning", self.pruning, PRUNINGS)

    @property
    def needed_hops(self) -> int | None:
        return self.hops if self.pruning == "neighbourhood" else None

    def build(self, seed: int) -> "LayoutGnnRanker":
        """Return an unfitted ranker."""
        return LayoutGnnRanker(self, seed)


@dataclass(frozen=True)
class LayoutInputs:
    """A pruned graph as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    layouts: Tensor  # (layouts, 18) int8 tokens 0 to 6, the distinct layouts of pairs
    pair_layout: Tensor  # (pairs,) int64, the layout of each pair
    pair_features: Tensor  # (pairs, NUM_PAIR_FEATURES) float32
    listed: Tensor  # (distinct configs,) bool: the reference list that others are scored beside
    structure: Structure


class LayoutGnnRanker(NetRanker[LayoutGnnSettings, LayoutInputs]):
    """The layout net as a Ranker.

    Its scores depend on the list: on the frequency of layouts in it, and on the mean of its sums.
    """

    scaled_tables = ("numeric", "pair_features")
    scores_beside_a_list = True

    def prepare(self, graph: Graph) -> LayoutInputs:
        return _preparer(self.settings.pruning, self.settings.hops)(graph)

    def make_net(self) -> "LayoutGnn":
        return LayoutGnn(self.settings)

    def in_numpy(self) -> LayoutForward:
        """Return the fitted net for prediction without torch; scores differ by rounding."""
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it is asked for its weights")
        state = self.net_.state_dict().items()
        weights = {name: value.float().cpu().numpy() for name, value in state}
        return LayoutForward(dataclasses.asdict(self.settings), weights, self.scalers_)


@cache
def _preparer(pruning: str, hops: int) -> PerGraph[LayoutInputs]:
    return PerGraph(partial(prepare, pruning=pruning, hops=hops))


def prepare(graph: Graph, pruning: str, hops: int) -> LayoutInputs:
    """Return the arrays of solution.models.layout.inputs as tensors."""
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
    """Linear, GELU, Linear of [node, layout], without repeating products that rows share.

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
        """Return the product of the weights with the table's row of each token.

        The table is multiplied with the weights of each slot once; the sum over slots is then one
        product with a one-hot matrix. An embedding lookup would be slower, and its gradient adds up
        a row for each use.
        """
        numbers = torch.arange(len(table), dtype=tokens.dtype, device=tokens.device)
        is_token = (tokens[..., None] == numbers).flatten(1)
        by_token = weights.unflatten(1, (tokens.shape[1], -1)) @ table.T
        return functional.linear(is_token.to(table.dtype), by_token.flatten(1))


class Receiving(Protocol):
    """A round of the net without its products with weights."""

    known: Tensor  # (marked, extras) float32: features of the constraints on a colour's tensor

    def prepare_gradient(self) -> None:
        """Prepare what the gradient needs."""

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return kept of the parent + [GELU(u), GELU(-u)], u = norm(sum of messages + extra).

        Shapes: messages (3 x colours before, half), kept (colours before, 2 x half), extra (marked,
        half) -> (colours after, 2 x half).
        """


class DeviceRound:
    """A round in torch operations."""

    def __init__(self, links: Round, device: torch.device) -> None:
        self.aggregation = SparseMatrix(links.aggregation, device)
        self.marked, self.known = (send(part, device) for part in links.marks)
        before = links.aggregation.num_columns // 3
        self.parents = SparseMatrix(select(links.parents, before), device)

    def prepare_gradient(self) -> None:
        """Transpose both matrices."""
        self.aggregation.prepare_gradient()
        self.parents.prepare_gradient()

    def receive(self, messages: Tensor, kept: Tensor, extra: Tensor, norm: nn.LayerNorm) -> Tensor:
        """See Receiving."""
        sums = self.aggregation @ messages
        update = norm(sums.index_add_(0, self.marked, extra.to(sums.dtype)))
        positive = functional.gelu(update)
        both = torch.cat([positive, positive - update], dim=-1)  # GELU(-u) = GELU(u) - u
        return both.add_(self.parents @ kept)


class Pooling:
    """Sum the colours after the last round over the nodes of each graph, by a sparse matrix."""

    def __init__(self, graphs: Sequence[Structure], last: Colours, device: torch.device) -> None:
        self.matrix = SparseMatrix(find_pooling(graphs, last), device)
        self._shape = last.numbers.shape[1], len(graphs)

    def prepare_gradient(self) -> None:
        """Transpose the matrix."""
        self.matrix.prepare_gradient()

    def pool(self, x: Tensor) -> Tensor:
        """Return sums (configs, graphs, NUM_SHARES x width) of x (colours, width)."""
        configs, graphs = self._shape
        pooled = (self.matrix @ x).view(-1, graphs, NUM_SHARES * x.shape[1])
        usual, differences, others = pooled.split([1, configs, configs])
        return usual + differences + others


@dataclass(frozen=True)
class Computation:
    """All steps of a batch; nodes and (node, layout) pairs of its graphs are numbered
    consecutively."""

    nodes: Tensor  # (colours 0,) int64, the node of each
    configured: Tensor  # (configured,) int64, the colours 0 that have a layout
    pairs: Tensor  # (configured,) int64, their (node, layout) pairs
    rounds: Sequence[Receiving]
    pooling: Pooling

    def prepare_gradients(self) -> None:
        """Prepare what gradients need."""
        for receiving in self.rounds:
            receiving.prepare_gradient()
        self.pooling.prepare_gradient()


def derive_computation(
    graphs: Sequence[Structure], configs: np.ndarray, rounds: int, device: torch.device
) -> Computation:
    """Return the computation for `configs` (configs, graphs), rows of each graph's codes."""
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
    """A residual graph convolution on colours (solution.models.layout.colour_refinement).

    x' = S x + [GELU(u), GELU(-u)]
    u = norm(W x + W_operands mean(operands) + W_consumers mean(consumers) + W_e extra + b)

    The products with the weights are taken before the colours are spread to more of them, and
    half the outputs are computed: both signs of them are used. S is the identity where the width
    stays, and learned where it changes.

    Shapes: x (colours before, inputs) -> (colours after, outputs).
    Source: GraphSAGE (Hamilton et al., 2017), operands and consumers apart; both signs: CReLU
    (Shang et al., 2016).
    """

    def __init__(self, inputs: int, outputs: int, extras: int) -> None:
        super().__init__()
        self.weights = nn.Linear(inputs, 3 * (outputs // 2), bias=False)
        self.extra = nn.Linear(extras, outputs // 2)
        self.skip = nn.Identity() if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs // 2)

    def forward(self, x: Tensor, receiving: Receiving) -> Tensor:
        half = len(self.extra.bias)
        # Part of the first message, of which each colour sums exactly one.
        bias = functional.pad(self.extra.bias, (0, 2 * half))
        messages = functional.linear(x, self.weights.weight, bias).view(3 * len(x), half)
        # Few colours have constraints: a product over all would take as long as a full matrix.
        extra = functional.linear(receiving.known, self.extra.weight)
        return receiving.receive(messages, self.skip(x), extra, self.norm)


class LayoutGnn(nn.Module):
    """Score configurations of pruned layout graphs."""

    def __init__(self, settings: LayoutGnnSettings) -> None:
        super().__init__()
        self.width = settings.width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.token = nn.Embedding(vocabulary.NUM_LAYOUT_TOKENS, TOKEN_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, self.width, self.width)
        self.pair = PairMlp(self.width, TOKEN_WIDTH, NUM_PAIR_FEATURES)
        self.blocks = nn.ModuleList(
            ColourBlock(before, after, len(conflicts.FEATURES))
            for before, after in pairwise((self.width, *settings.rounds))
        )
        last = settings.rounds[-1]
        self.dropout = nn.Dropout(settings.dropout)
        self.readout = Mlp(last * NUM_SHARES, last, 1)

    def score_batch(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs) of these configurations, compared among each other."""
        return self._compare(self.pool(batch, configs))

    def plan(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Computation:
        """Return the computation of a step, prepared for gradients."""
        computation = self._derive(batch, configs)
        computation.prepare_gradients()
        return computation

    def score_planned(
        self, batch: Sequence[LayoutInputs], configs: np.ndarray, plan: Computation
    ) -> Tensor:
        """Return the scores of score_batch from a planned computation."""
        return self._compare(self._pool(batch, plan))

    def pool(self, batch: Sequence[LayoutInputs], configs: np.ndarray) -> Tensor:
        """Return sums over nodes (configs, graphs, values), each configuration for itself.

        The graphs become one disconnected graph with a common config axis.
        """
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
        # Only the pairs that these configurations use: (configured, ...)
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
        """Return nodes times width."""
        return len(inputs.opcodes) * self.width

    @torch.inference_mode()
    def score_graph(self, inputs: LayoutInputs) -> np.ndarray:
        """Return scores (configs,), summed one chunk of configurations at a time."""
        self.eval()
        step = max(1, CHUNK_VALUES // self.count_values(inputs))
        rows = np.arange(len(inputs.structure.codebook.codes))[:, None]
        chunks = [
            self.pool([inputs], rows[first : first + step]) for first in range(0, len(rows), step)
        ]
        listed = None if inputs.listed.all() else inputs.listed
        return self._compare(torch.cat(chunks), listed)[:, 0].float().cpu().numpy()
