"""An additive cost model: a net sums the costs of a program's states, copies and instructions.

    nodes ── MLP ──┐
    states ────────┴─▶ GELU ─▶ cost per byte ─▶ sum over a configuration's states ─▶ score

Layout assignment is not learned: the compiler's rules tell every tensor's layout and every copy
(solution.features.propagation). The net learns from many programs what a copy costs, and what an
instruction costs in its layouts. It starts from prior costs (solution.models.layout.known_costs),
so an untrained net ranks by weighted bytes that are copied or processed. Learned factors are
bounded so that out-of-distribution programs fall back on the prior: copies and slow loops change by
a few times at most, spared bytes do not change, and an instruction's bytes cost little beside a
copy.

One cost does not depend on the program: whether its arguments come in the layouts that it asks for.
If they do, copies of them are free. One learned number is the factor of all such copies.

A score is a sum, so it can be explained (list_costs). It is on the scale of its list's copies:
programs with many and with few copies count alike.
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

CHUNK_VALUES = 1 << 24  # (configuration, state) entries summed in one chunk
OPCODE_WIDTH = 16
# columns of the state table that the net takes as they are
COLUMNS = ("node", "reader", "features", "shares", "strides", "short_loops", "at_once", "split",
           "slow_products")  # fmt: skip
MOST_TIMES = 3.0  # largest learned factor, and the inverse of the smallest
MOST = 0.3  # largest cost of an instruction's byte, relative to a copied byte
MAKING_RATE = 0.3  # learning rate of instruction costs, relative to copies
ARGUMENT_RATE = 40.0  # learning rate of the argument factor, relative to all else
# States of more configurations of a large program would not fit into memory.
TRAINING = replace(layout_gnn.TRAINING, loss="pairwise_logistic", max_configs=1000)


@dataclass(frozen=True)
class CostNetSettings(RankerSettings):
    """Settings of the additive cost net."""

    backend: str = "cpu"  # a name in features.propagation.backend.BACKENDS
    width: int = 64
    dropout: float = 0.3  # of a state's columns
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)

    @property
    def needed_hops(self) -> int | None:
        """None: the whole graph, because a request reaches as far as it propagates."""
        return None

    def build(self, seed: int) -> "CostNetRanker":
        """Return an unfitted ranker."""
        return CostNetRanker(self, seed)


@dataclass(frozen=True)
class CostInputs:
    """A graph and the states of its configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    node: Tensor  # (states,) int64, the node of the written or copied tensor; num_nodes: none
    reader: Tensor  # (states,) int64, the node that reads the copy, else the same
    features: Tensor  # (states, len(FEATURES)) float32
    shares: Tensor  # (states, NUM_SHARES) float32
    strides: Tensor  # (states,) float32, the read distance of a copy
    short_loops: Tensor  # (states,) float32, share of bytes in loops that are too short
    at_once: Tensor  # (states,) float32, share of bytes a library fuses with a reduction
    split: Tensor  # (states,) float32, share of bytes reduced in two steps
    slow_products: Tensor  # (states,) float32, multiplications a library leaves out, per byte
    is_argument: Tensor  # (states,) float32: 1 if the tensor is a parameter
    is_copied: Tensor  # (states,) float32: 1 if the state has a copy
    is_made: Tensor  # (states,) float32: 1 if the state is an instruction's
    numbers: np.ndarray  # (distinct configs, entries) int32: the states of each configuration
    listed: Tensor  # (distinct configs,) bool: the reference list that others are scored beside


class CostNetRanker(NetRanker[CostNetSettings, CostInputs], CostRanker):
    """The additive cost net as a Ranker.

    Its scores depend on the list by a factor and a constant.
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
    """Return the states of solution.features.propagation.state_table as tensors."""
    table = state_tables(backend)(graph)
    return CostInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        **{name: torch.from_numpy(getattr(table, name)) for name in COLUMNS},
        is_argument=torch.from_numpy(find_arguments(graph, table).astype(np.float32)),
        is_copied=torch.from_numpy(table.is_copied.astype(np.float32)),
        is_made=torch.from_numpy(find_made(table).astype(np.float32)),
        numbers=table.numbers,
        listed=torch.from_numpy(graph.listed_distinct),
    )


class StateMlp(nn.Module):
    """Linear, GELU, Linear of [node, reader, state]; initialised to output 0.

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
        # Products of a node are computed once, not for each of its states.
        known = self.node(nodes)[node] + self.reader(nodes)[reader]
        known = functional.gelu(known + self.state(features))
        return cast("Tensor", self.out(self.dropout(known)))


class CostNet(nn.Module):
    """Score configurations of whole layout graphs."""

    def __init__(self, settings: CostNetSettings) -> None:
        super().__init__()
        width, dropout = settings.width, settings.dropout
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        self.instruction = StateMlp(width, len(FEATURES), NUM_SHARES, dropout)
        # Factors of copies, short loops, two-step reductions and slow dots.
        self.times = StateMlp(width, len(FEATURES), 4, dropout)
        self.argument = nn.Parameter(torch.zeros(()))
        self.log_factor = nn.Parameter(torch.zeros(()))  # scale of all scores: their confidence

    def score_batch(self, batch: Sequence[CostInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs) of these configurations, compared among each other."""
        columns = []
        for inputs, rows in zip(batch, configs.T, strict=True):
            # Only the states of the step's configurations are computed.
            used, local = np.unique(inputs.numbers[rows], return_inverse=True)
            local = local.reshape(len(rows), -1)
            columns.append(self._compare(_add_up(self._weigh(inputs, used), local)))
        return torch.stack(columns, dim=1)

    def count_values(self, inputs: CostInputs) -> int:
        """Return twice the number of states of a configuration."""
        return inputs.numbers.shape[1] * 2

    @torch.inference_mode()
    def score_graph(self, inputs: CostInputs) -> np.ndarray:
        """Return scores (configs,), summed one chunk of configurations at a time."""
        self.eval()
        listed = None if inputs.listed.all() else inputs.listed
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        return self._compare(self._add_up_all(inputs, weights), listed).float().cpu().numpy()

    @torch.inference_mode()
    def list_costs(self, inputs: CostInputs) -> np.ndarray:
        """Return what each state adds to a score: (states,)."""
        self.eval()
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        scale = self._find_scale(self._add_up_all(inputs, weights)[inputs.listed])
        return (weights[:, 0] * scale).double().cpu().numpy()

    def _compare(self, sums: Tensor, listed: Tensor | None = None) -> Tensor:
        """Return scores (configs,) from costs and copied bytes (configs, 2)."""
        compared = sums if listed is None else sums[listed]
        return (sums[:, 0] - compared[:, 0].mean()) * self._find_scale(compared)

    def _find_scale(self, compared: Tensor) -> Tensor:
        return self.log_factor.exp() / compared[:, 1].std(unbiased=False).clamp(min=LEAST)

    def _add_up_all(self, inputs: CostInputs, weights: Tensor) -> Tensor:
        """Return costs and copied bytes (configs, 2) of all configurations, in chunks."""
        step = max(1, CHUNK_VALUES // max(1, inputs.numbers.shape[1]))
        chunks = [
            _add_up(weights, inputs.numbers[first : first + step])
            for first in range(0, len(inputs.numbers), step)
        ]
        return torch.cat(chunks)

    def _weigh(self, inputs: CostInputs, states: np.ndarray) -> Tensor:
        """Return costs and copied bytes (states, 2) of some states (states,).

        cost = times_1 (1 + STRIDED strides) copied bytes
             + sum of times_i (slow bytes) - ONCE spared bytes + sum of a_share (bytes)
        times = MOST_TIMES ^ tanh(net);  a_share = MOST tanh(net)
        """
        nodes = self.node(self.opcode.weight, inputs.opcodes, inputs.numeric)
        nodes = functional.pad(nodes, (0, 0, 0, 1))  # the last row is for states without a node
        rows = send(states, nodes.device)
        known = nodes, inputs.node[rows], inputs.reader[rows], inputs.features[rows]
        shares, is_made = inputs.shares[rows], inputs.is_made[rows]
        # A factor between 0 and 2, relative to copies of other tensors.
        counts = 2 * torch.sigmoid(_hasten(self.argument))
        moved = inputs.is_copied[rows] * shares[:, BYTES]
        copied = torch.lerp(moved, counts * moved, inputs.is_argument[rows])
        times = MOST_TIMES ** torch.tanh(self.times(*known))
        copying = (1 + STRIDED * inputs.strides[rows]) * times[:, 0] * copied
        slowed = torch.stack([
            SHORT * inputs.short_loops[rows], SPLIT * inputs.split[rows],
            SLOW * inputs.slow_products[rows],
        ], dim=1)  # fmt: skip
        slowing = (times[:, 1:] * slowed).sum(dim=1)
        a_share = MOST * torch.tanh(MAKING_RATE / MOST * self.instruction(*known))
        sparing = ONCE * inputs.at_once[rows]
        making = ((a_share * shares).sum(dim=1) + slowing - sparing) * is_made
        return torch.stack([copying + making, moved], dim=1)


def _add_up(weights: Tensor, numbers: np.ndarray) -> Tensor:
    """Return sums (configs, values) of the weights (states, values) of `numbers` (configs,
    entries)."""
    configs, entries = numbers.shape
    rows = SparseRows(
        starts=np.arange(configs + 1) * entries,
        columns=numbers.reshape(-1).astype(np.int64),
        values=np.ones(numbers.size, np.float32),
        num_columns=len(weights),
    )
    return SparseMatrix(rows, weights.device) @ weights


def _hasten(parameter: Tensor) -> Tensor:
    """Scale by ARGUMENT_RATE in the forward pass, with an identity gradient (straight-through).

    Adam's steps do not depend on the size of a gradient, so this multiplies the learning rate
    without dominating gradient clipping.
    """
    return ARGUMENT_RATE * parameter.detach() + (parameter - parameter.detach())
