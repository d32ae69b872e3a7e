"""A net that adds up what the states of a program cost: copies, and instructions in their layouts.

    nodes ── MLP ──┐
    states ────────┴─▶ GELU ─▶ what a byte costs ─▶ sum over a configuration's states ─▶ score

Layout assignment is no matter of learning: the compiler's own rules say which layout every tensor
gets and where one is copied (solution.features.propagation). Learned is what a copy costs, and an
instruction in the layouts that it has, from many programs. Some things are known before
(solution.models.layout.known_costs): so a net that has learned nothing ranks by the bytes that are
copied or worked on, weighted so; and what is learned is bounded, a few times more or less for
copies and for what is slow, nothing for what is spared, little beside it for an instruction, for
what is unlike all that was learned from would otherwise be ranked by what does not hold there.

One thing is no matter of the program: whether its arguments come in the layouts that it asks for.
Where they do, copies of them cost nothing. So what such a copy counts is learned as one number.

A score is a sum, so it says why it is what it is (list_costs). It is on the scale of its list's
copies: programs that copy much and little count alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.state_table import BYTES, FEATURES, NUM_SHARES, state_tables
from solution.models.base import CostRanker, RankerSettings
from solution.models.layout import layout_gnn
from solution.models.layout.known_costs import (
    LEAST,
    ONCE,
    SHORT,
    SLOW,
    SPLIT,
    STRIDED,
    find_arguments,
    find_made,
)
from solution.models.nets.devices import one_thread, send
from solution.models.nets.layers import NodeMlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.sparse_rows import SparseRows
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import check_choice

CHUNK_VALUES = 1 << 24  # (configuration, place) entries that are summed at once
OPCODE_WIDTH = 16
MOST_TIMES = 3.0  # what is learned makes either cheaper or more expensive by this at most
MOST = 0.3  # what an instruction's byte costs at most, beside one that is copied
MAKING_RATE = 0.3  # how fast what instructions cost is learned, beside copies
ARGUMENT_RATE = 40.0  # how fast what copies of arguments count is learned, beside all else
# The states of more configurations of a large program would not be in memory together.
TRAINING = replace(layout_gnn.TRAINING, loss="pairwise_logistic", max_configs=1000)


@dataclass(frozen=True)
class CostNetSettings(RankerSettings):
    """Settings of the net of costs."""

    backend: str = "cpu"  # whose layout assignment: a name in features.propagation.backend.BACKENDS
    width: int = 64
    dropout: float = 0.3  # of what is known of a state
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)

    @property
    def needed_hops(self) -> int | None:
        """The whole graph: what is asked of one tensor reaches as far as it is handed on."""
        return None

    def build(self, seed: int) -> "CostNetRanker":
        """Make a ranker that is not fitted yet."""
        return CostNetRanker(self, seed)


@dataclass(frozen=True)
class CostInputs:
    """A graph and the states of its configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    node: Tensor  # (states,) int64 whose tensor is made or copied; the number of nodes: none
    reader: Tensor  # (states,) int64 for whom it is copied, else the same
    features: Tensor  # (states, len(FEATURES)) float32
    shares: Tensor  # (states, NUM_SHARES) float32
    strides: Tensor  # (states,) float32 how far apart a copy reads
    short_loops: Tensor  # (states,) float32 the share of bytes in loops that are too short
    at_once: Tensor  # (states,) float32 the share of bytes a library makes with a reduction
    split: Tensor  # (states,) float32 the share of bytes that are reduced in two steps
    slow_products: Tensor  # (states,) float32 the multiplications a library leaves out, a byte
    is_argument: Tensor  # (states,) float32: 1 where the tensor is a parameter
    is_copied: Tensor  # (states,) float32: 1 where something is copied
    is_made: Tensor  # (states,) float32: 1 where it is an instruction's
    numbers: np.ndarray  # (distinct configs, places) int32 rows of the above
    listed: Tensor  # (distinct configs,) bool: which are the list that the others stand beside


class CostNetRanker(NetRanker[CostNetSettings, CostInputs], CostRanker):
    """The net of costs as a Ranker.

    Its scores depend on the list, by a factor and a constant.
    """

    scaled_tables = ("numeric", "features")
    scores_beside_a_list = True
    reads_program_order = True

    @property
    def backend(self) -> str:
        return self.settings.backend

    def prepare(self, graph: Graph) -> CostInputs:
        return prepare(graph, self.backend)

    def make_net(self) -> "CostNet":
        return CostNet(self.settings)

    def list_costs(self, graph: Graph) -> np.ndarray:
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it explains")
        with one_thread():
            return cast("CostNet", self.net_).list_costs(self._scale(self._encoded(graph)))


def prepare(graph: Graph, backend: str) -> CostInputs:
    """The states of solution.features.propagation.state_table as tensors."""
    table = state_tables(backend)(graph)
    return CostInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        node=torch.from_numpy(table.node),
        reader=torch.from_numpy(table.reader),
        features=torch.from_numpy(table.features),
        shares=torch.from_numpy(table.shares),
        strides=torch.from_numpy(table.strides),
        short_loops=torch.from_numpy(table.short_loops),
        at_once=torch.from_numpy(table.at_once),
        split=torch.from_numpy(table.split),
        slow_products=torch.from_numpy(table.slow_products),
        is_argument=torch.from_numpy(find_arguments(graph, table).astype(np.float32)),
        is_copied=torch.from_numpy(table.is_copied.astype(np.float32)),
        is_made=torch.from_numpy(find_made(table).astype(np.float32)),
        numbers=table.numbers,
        listed=torch.from_numpy(graph.listed_distinct),
    )


class StateMlp(nn.Module):
    """Linear, GELU, Linear of [node, reader, state]; 0 before anything is learned.

    Shapes: nodes (nodes, width), node and reader (states,) int64, features (states, values) ->
    (states, outputs).
    """

    def __init__(self, width: int, values: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.node = nn.Linear(width, width)
        self.reader = nn.Linear(width, width, bias=False)
        self.state = nn.Linear(values, width, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, outputs)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, nodes: Tensor, node: Tensor, reader: Tensor, features: Tensor) -> Tensor:
        # The products of a node are taken once, not for each of its states.
        known = self.node(nodes)[node] + self.reader(nodes)[reader]
        known = functional.gelu(known + self.state(features))
        return cast("Tensor", self.out(self.dropout(known)))


class CostNet(nn.Module):
    """Scores configurations of whole layout graphs."""

    def __init__(self, settings: CostNetSettings) -> None:
        super().__init__()
        width, dropout = settings.width, settings.dropout
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        self.instruction = StateMlp(width, len(FEATURES), NUM_SHARES, dropout)
        # Of copies, of short loops, of reductions in two steps, of products that are slow.
        self.times = StateMlp(width, len(FEATURES), 4, dropout)
        self.argument = nn.Parameter(torch.zeros(()))
        self.log_factor = nn.Parameter(torch.zeros(()))  # of all scores: how sure they are

    def score_batch(self, batch: Sequence[CostInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs): scores of these configurations among each other."""
        columns = []
        for inputs, rows in zip(batch, configs.T, strict=True):
            # Only the states that a step's configurations are in are weighed.
            used, local = np.unique(inputs.numbers[rows], return_inverse=True)
            local = local.reshape(len(rows), -1)
            columns.append(self._compare(_add_up(self._weigh(inputs, used), local)))
        return torch.stack(columns, dim=1)

    def count_values(self, inputs: CostInputs) -> int:
        """Places of a configuration, twice."""
        return inputs.numbers.shape[1] * 2

    @torch.inference_mode()
    def score_graph(self, inputs: CostInputs) -> np.ndarray:
        """(configs,), added up a chunk of configurations at a time."""
        self.eval()
        listed = None if inputs.listed.all() else inputs.listed
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        return self._compare(self._add_up_all(inputs, weights), listed).float().cpu().numpy()

    @torch.inference_mode()
    def list_costs(self, inputs: CostInputs) -> np.ndarray:
        """(states,): what each adds to a score."""
        self.eval()
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        scale = self._find_scale(self._add_up_all(inputs, weights)[inputs.listed])
        return (weights[:, 0] * scale).double().cpu().numpy()

    def _compare(self, sums: Tensor, listed: Tensor | None = None) -> Tensor:
        """Scores (configs,) of costs and copied bytes (configs, 2)."""
        own = sums if listed is None else sums[listed]
        return (sums[:, 0] - own[:, 0].mean()) * self._find_scale(own)

    def _find_scale(self, own: Tensor) -> Tensor:
        return self.log_factor.exp() / own[:, 1].std(unbiased=False).clamp(min=LEAST)

    def _add_up_all(self, inputs: CostInputs, weights: Tensor) -> Tensor:
        """Costs and copied bytes (configs, 2) of all configurations, a chunk at a time."""
        step = max(1, CHUNK_VALUES // max(1, inputs.numbers.shape[1]))
        chunks = [
            _add_up(weights, inputs.numbers[first : first + step])
            for first in range(0, len(inputs.numbers), step)
        ]
        return torch.cat(chunks)

    def _weigh(self, inputs: CostInputs, states: np.ndarray) -> Tensor:
        """Costs and copied bytes (states, 2) of some states (states,)."""
        nodes = self.node(self.opcode.weight, inputs.opcodes, inputs.numeric)
        nodes = functional.pad(nodes, (0, 0, 0, 1))  # the last is that of what is no node's
        own = send(states, nodes.device)
        known = nodes, inputs.node[own], inputs.reader[own], inputs.features[own]
        shares, is_made = inputs.shares[own], inputs.is_made[own]
        # Between nothing and twice as much as a copy of any other tensor.
        counts = 2 * torch.sigmoid(_hasten(self.argument))
        moved = inputs.is_copied[own] * shares[:, BYTES]
        copied = torch.lerp(moved, counts * moved, inputs.is_argument[own])
        times = MOST_TIMES ** torch.tanh(self.times(*known))
        copying = (1 + STRIDED * inputs.strides[own]) * times[:, 0] * copied
        slowed = torch.stack([
            SHORT * inputs.short_loops[own], SPLIT * inputs.split[own],
            SLOW * inputs.slow_products[own],
        ], dim=1)  # fmt: skip
        slowing = (times[:, 1:] * slowed).sum(dim=1)
        a_share = MOST * torch.tanh(MAKING_RATE / MOST * self.instruction(*known))
        sparing = ONCE * inputs.at_once[own]
        making = ((a_share * shares).sum(dim=1) + slowing - sparing) * is_made
        return torch.stack([copying + making, moved], dim=1)


def _add_up(weights: Tensor, numbers: np.ndarray) -> Tensor:
    """Sums (configs, values) of the weights (states, values) of `numbers` (configs, places)."""
    configs, places = numbers.shape
    rows = SparseRows(
        starts=np.arange(configs + 1) * places,
        columns=numbers.reshape(-1).astype(np.int64),
        values=np.ones(numbers.size, np.float32),
        num_columns=len(weights),
    )
    return SparseMatrix(rows, weights.device) @ weights


def _hasten(parameter: Tensor) -> Tensor:
    """ARGUMENT_RATE times the parameter, with a gradient as if it were the parameter itself.

    Adam's steps are as long whatever the gradient, so it is learned that much faster; and what is
    clipped is not drowned by it.
    """
    return ARGUMENT_RATE * parameter.detach() + (parameter - parameter.detach())
