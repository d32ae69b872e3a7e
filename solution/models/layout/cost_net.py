"""Rank configurations by an additive cost model: a net gives each state of a program a cost.

    nodes ── MLP ──┐
    states ────────┴─▶ GELU ─▶ cost per byte ─▶ sum over a configuration's states ─▶ score

A *state* is the layout assignment of an instruction, or of an operand as one instruction reads it;
the latter may need a copy. Layout assignment is not learned: the compiler's rules tell every
tensor's layout and every copy (solution.features.propagation). The net learns from many programs
what a copy costs, and what an instruction costs in its layouts. It starts from *prior costs*
(solution.models.layout.known_costs), so an untrained net ranks by weighted bytes that are copied or
processed. Learned factors are bounded so that out-of-distribution programs fall back on the prior:
the costs of copies and slow loops change by a factor of MOST_TIMES at most, the savings of fused
instructions do not change, and an instruction's bytes cost little compared with copied bytes.

Copies of arguments (a program's parameters) are free if the caller passes the arguments in the
layouts that the program asks for. This depends on how the programs were measured, not on the
program. So the costs of all copies of arguments have one learned factor, equal for all programs.

A score is a sum over states, so each state's share of it can be shown (list_costs). Scores are
divided by the standard deviation of copied bytes over the graph's reference list (the
configurations that are scored together), so that programs have equal influence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import NUM_NUMERIC, numeric_features
from solution.features.propagation import state_table
from solution.features.propagation.backend import BACKENDS
from solution.models.base import CostRanker
from solution.models.layout import known_costs, layout_gnn
from solution.models.nets.devices import one_thread, send
from solution.models.nets.forward import SparseRows
from solution.models.nets.layers import NodeMlp
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.training_settings import TrainingSettings
from solution.models.sampling import TrainingRows
from solution.system.report import Report, silent

# maximum number of (configuration, state) entries that are summed at once, to bound memory
CHUNK_VALUES = 1 << 24
# length of the vector that embeds an opcode
OPCODE_WIDTH = 16
# Fields of the state table that are copied to CostInputs unchanged.
COLUMNS = ("node", "reader", "features", "shares", "strides", "short_loops", "at_once", "split",
           "slow_products", "padding")  # fmt: skip
# the net multiplies prior costs of copies and slow loops by 1 / MOST_TIMES to MOST_TIMES
MOST_TIMES = 3.0
# largest absolute value of the learned cost of an instruction's byte, relative to a copied byte
MOST = 0.3
MAKING_RATE = 0.3  # learning rate of instruction costs, relative to that of copy costs
ARGUMENT_RATE = 40.0  # learning rate of the factor on copies of arguments, relative to other rates
# At most 1000 configurations of a graph: more configurations of a large graph have too many states.
TRAINING = replace(layout_gnn.TRAINING, loss="pairwise_logistic", max_configs=1000)


@dataclass(frozen=True)
class CostNetSettings(known_costs.CostSettings):
    """Settings of the additive cost net."""

    width: int = 64
    # dropout rate in the hidden layer of the nets that map a state to its cost
    dropout: float = 0.3
    training: TrainingSettings = TRAINING

    def build(self, seed: int) -> "CostNetRanker":
        return CostNetRanker(self, seed)


@dataclass(frozen=True)
class CostInputs:
    """A graph and the states of its configurations (see CostRanker) as tensors."""

    opcodes: Tensor  # (nodes,) int64: opcode number of each node
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32: numeric node features
    node: Tensor  # (states,) int64, node of the tensor that is written or copied; num_nodes: none
    reader: Tensor  # (states,) int64, node that reads the copy; `node` for an instruction's state
    features: Tensor  # (states, columns) float32: columns that describe a state
    shares: Tensor  # (states, NUM_SHARES) float32: factors of costs, such as a share of bytes
    strides: Tensor  # (states,) float32: log2 of elements between consecutive reads; 0: no copy
    # (states,) float32: share of all tensors' bytes that is in loops too short to be fast
    short_loops: Tensor
    # (states,) float32: share of all tensors' bytes that a library fuses with a reduction
    at_once: Tensor
    # (states,) float32: share of all tensors' bytes that are reduced in two steps
    split: Tensor
    # (states,) float32: multiplications of dots that the library does not compute, over all bytes
    slow_products: Tensor
    padding: Tensor  # (states,) float32: see StateTable.padding
    is_argument: Tensor  # (states,) float32: 1 if the state's tensor is a parameter of the program
    is_copied: Tensor  # (states,) float32: 1 if an operand is copied
    is_made: Tensor  # (states,) float32: 1 for the state of an instruction, see StateTable.is_made
    numbers: np.ndarray  # (distinct configs, entries): the states of each configuration
    listed: Tensor  # (distinct configs,) bool: reference list, whose mean and spread scale scores


class CostNetRanker(NetRanker[CostNetSettings, CostInputs], CostRanker):
    """The additive cost net. The reference list (Graph.listed) changes all scores of a graph by
    one factor and one constant."""

    scaled_tables = ("numeric", "features")
    reads_program_order = True
    scores_beside_a_list = True

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        self.backend = known_costs.choose_backend(self.settings.backend, graphs)
        known_costs.share_tables(graphs, self.settings.training.max_configs, self.backend)
        return super().fit(graphs, validation, report)

    def prepare(self, graph: Graph) -> CostInputs:
        return prepare(graph, self.backend)

    def choose(self, graph: Graph, limit: int | None) -> TrainingRows:
        return known_costs.choose_predicted(graph, limit)

    def make_net(self) -> "CostNet":
        return CostNet(self.settings, self.backend)

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.save_backend(folder)

    def load(self, folder: Path) -> Self:
        self.load_backend(folder)
        return super().load(folder)

    def list_costs(self, graph: Graph) -> np.ndarray:
        if self.net_ is None:
            raise RuntimeError("fit the ranker before it explains")
        with one_thread():
            return cast("CostNet", self.net_).list_costs(self._scale(self._encoded(graph)))


def prepare(graph: Graph, backend: str) -> CostInputs:
    """Return a graph's nodes and state table as tensors. `backend`: a name in BACKENDS."""
    table = state_table.state_tables(backend)(graph)
    return CostInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        **{name: torch.from_numpy(getattr(table, name)) for name in COLUMNS},
        is_argument=torch.from_numpy(known_costs.find_arguments(graph, table).astype(np.float32)),
        is_copied=torch.from_numpy(table.is_copied.astype(np.float32)),
        is_made=torch.from_numpy(table.is_made.astype(np.float32)),
        numbers=table.numbers,
        listed=torch.from_numpy(graph.listed_distinct),
    )


class StateMlp(nn.Module):
    """An MLP (Linear, GELU, Linear) of the vectors of a state's node and reader, and the state's
    features. Its outputs are 0 before training.

    Shapes: nodes (nodes, width), node and reader (states,) indices of its rows, features (states,
    values) -> (states, outputs).
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
        # Multiply each node's vector by the weights once, not once for each state of the node.
        known = self.node(nodes)[node] + self.reader(nodes)[reader]
        known = functional.gelu(known + self.state(features))
        return cast("Tensor", self.out(self.dropout(known)))


class CostNet(nn.Module):
    """The additive cost net: score configurations of whole (not pruned) layout graphs."""

    def __init__(self, settings: CostNetSettings, backend: str) -> None:
        super().__init__()
        width, dropout = settings.width, settings.dropout
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = NodeMlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        columns = len(state_table.list_state_features(backend))
        self.pads = BACKENDS[backend].device_layouts
        self.instruction = StateMlp(width, columns, state_table.NUM_SHARES, dropout)
        # factors on the costs of copies, short loops, two-step reductions, slow dots, and padding
        self.times = StateMlp(width, columns, 4 + self.pads, dropout)
        # the factor on the cost of copies of arguments, before a sigmoid: see _weigh
        self.argument = nn.Parameter(torch.zeros(()))
        # log of a factor on all scores; the factor is learned, because the loss depends on it
        self.log_factor = nn.Parameter(torch.zeros(()))

    def score_batch(self, batch: Sequence[CostInputs], configs: np.ndarray) -> Tensor:
        """Return scores (configs, graphs), centred and scaled over these configurations."""
        columns = []
        for inputs, rows in zip(batch, configs.T, strict=True):
            # Only states that occur in these configurations are computed.
            used, local = np.unique(inputs.numbers[rows], return_inverse=True)
            local, used = local.reshape(len(rows), -1), used.astype(np.int64)
            columns.append(self._compare(_add_up(self._weigh(inputs, used), local)))
        return torch.stack(columns, dim=1)

    def count_values(self, inputs: CostInputs) -> int:
        """Return the approximate number of values per configuration in memory: 2 for each state."""
        return inputs.numbers.shape[1] * 2

    @torch.inference_mode()
    def score_graph(self, inputs: CostInputs) -> np.ndarray:
        """Return scores (distinct configs,), computed in chunks of configurations."""
        self.eval()
        listed = None if inputs.listed.all() else inputs.listed
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        return self._compare(self._add_up_all(inputs, weights), listed).float().cpu().numpy()

    @torch.inference_mode()
    def list_costs(self, inputs: CostInputs) -> np.ndarray:
        """Return the cost (states,) that each state adds to a configuration's score."""
        self.eval()
        weights = self._weigh(inputs, np.arange(len(inputs.node)))
        scale = self._find_scale(self._add_up_all(inputs, weights)[inputs.listed])
        return (weights[:, 0] * scale).double().cpu().numpy()

    def _compare(self, sums: Tensor, listed: Tensor | None = None) -> Tensor:
        """Return scores (configs,) from sums (configs, 2) of costs and copied bytes: (cost - mean
        cost) * exp(log_factor) / deviation of copied bytes. Mean and deviation are over the
        configurations `listed` (configs,) bool (None: all)."""
        compared = sums if listed is None else sums[listed]
        return (sums[:, 0] - compared[:, 0].mean()) * self._find_scale(compared)

    def _find_scale(self, compared: Tensor) -> Tensor:
        """Return the factor () on costs: exp(log_factor) / deviation of copied bytes. `compared`:
        sums (configs, 2) of costs and copied bytes of the listed configurations; see _compare."""
        return self.log_factor.exp() / compared[:, 1].std(unbiased=False).clamp(
            min=known_costs.LEAST
        )

    def _add_up_all(self, inputs: CostInputs, weights: Tensor) -> Tensor:
        """Return the sums (configs, 2) of costs and copied bytes over each configuration's states.
        `weights`: (states, 2), the result of _weigh."""
        step = max(1, CHUNK_VALUES // max(1, inputs.numbers.shape[1]))
        chunks = [
            _add_up(weights, inputs.numbers[first : first + step])
            for first in range(0, len(inputs.numbers), step)
        ]
        return torch.cat(chunks)

    def _weigh(self, inputs: CostInputs, states: np.ndarray) -> Tensor:
        """Return costs and copied bytes (states, 2) of the states with the given indices (states,).
        On a TPU, copied bytes include the prior cost of padding: layouts may differ in that alone.

        cost = times_0 (1 + STRIDED strides) copied bytes + is_made * (sum over i > 0 of times_i
               slow_i - ONCE spared bytes + sum over i of a_i shares_i)
        times = MOST_TIMES ^ tanh(net);  a = MOST tanh(net);  slow: prior costs except of copies
        """
        nodes = self.node(self.opcode.weight, inputs.opcodes, inputs.numeric)
        # row num_nodes is 0: it serves states without a node
        nodes = functional.pad(nodes, (0, 0, 0, 1))
        rows = send(states, nodes.device)
        known = nodes, inputs.node[rows], inputs.reader[rows], inputs.features[rows]
        shares, is_made = inputs.shares[rows], inputs.is_made[rows]
        # Copies of arguments cost between 0 and 2 times as much as copies of other tensors.
        counts = 2 * torch.sigmoid(_hasten(self.argument))
        moved = inputs.is_copied[rows] * shares[:, state_table.BYTES]
        copied = torch.lerp(moved, counts * moved, inputs.is_argument[rows])
        times = MOST_TIMES ** torch.tanh(self.times(*known))
        copying = (1 + known_costs.STRIDED * inputs.strides[rows]) * times[:, 0] * copied
        slowed = [
            known_costs.SHORT * inputs.short_loops[rows], known_costs.SPLIT * inputs.split[rows],
            known_costs.SLOW * inputs.slow_products[rows],
        ]  # fmt: skip
        if self.pads:
            slowed.append(known_costs.PADDED * inputs.padding[rows])
            moved = moved + slowed[-1] * is_made
        slowing = (times[:, 1:] * torch.stack(slowed, dim=1)).sum(dim=1)
        a_share = MOST * torch.tanh(MAKING_RATE / MOST * self.instruction(*known))
        sparing = known_costs.ONCE * inputs.at_once[rows]
        making = ((a_share * shares).sum(dim=1) + slowing - sparing) * is_made
        return torch.stack([copying + making, moved], dim=1)


def _add_up(weights: Tensor, numbers: np.ndarray) -> Tensor:
    """Return the sums (configs, values) of `weights` (states, values) over the states of each
    configuration, `numbers` (configs, entries)."""
    configs, entries = numbers.shape
    rows = SparseRows(
        starts=np.arange(configs + 1) * entries,
        columns=numbers.reshape(-1).astype(np.int64),
        values=np.ones(numbers.size, np.float32),
        num_columns=len(weights),
    )
    return SparseMatrix(rows, weights.device) @ weights


def _hasten(parameter: Tensor) -> Tensor:
    """Return ARGUMENT_RATE * parameter with the gradient of `parameter` itself (straight-through).
    Adam's steps do not depend on a gradient's size, so this multiplies the learning rate, but the
    gradient stays small, so it does not dominate gradient clipping."""
    return ARGUMENT_RATE * parameter.detach() + (parameter - parameter.detach())
