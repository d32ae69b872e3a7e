"""A net that adds up what the states of a program cost, as the compiler would have them.

    nodes ── MLP ──┐
    states ────────┴─▶ GELU ─▶ values ─▶ sums over a configuration's states
                          score ◀─ MLP ◀─ standardised over configurations

Layout assignment is no matter of learning: the compiler's own rules say which layout every tensor
gets and where one is copied (solution.features.propagation). What is learned is what each
instruction costs in the layouts that it has, and each copy, from many programs. There is no message
passing: what a node hears of its neighbours is in its state. Where the last MLP is one linear layer
(`adds_up`), a score is the sum of what its states cost, and says why it is what it is.
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
from solution.features.propagation.state_table import FEATURES, NUM_SHARES, state_tables
from solution.models.base import RankerSettings
from solution.models.layout import layout_gnn
from solution.models.nets.devices import one_thread
from solution.models.nets.layers import Mlp, slope, standardise
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.sparse_rows import SparseRows
from solution.models.nets.training_loop import TrainingSettings
from solution.models.settings import check_choice

CHUNK_VALUES = 1 << 24  # (configuration, place) entries that are summed at once
OPCODE_WIDTH = 16
# The states of more configurations of a large program would not be in memory together.
TRAINING = replace(layout_gnn.TRAINING, max_configs=1000)


@dataclass(frozen=True)
class PropagatedNetSettings(RankerSettings):
    """Settings of the net on propagated states."""

    backend: str = "cpu"  # whose layout assignment: a name in features.propagation.backend.BACKENDS
    width: int = 64
    dropout: float = 0.3  # of the sums
    adds_up: bool = False  # a score is the sum of what its states cost
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)

    @property
    def needed_hops(self) -> int | None:
        """The whole graph: what is asked of one tensor reaches as far as it is handed on."""
        return None

    def build(self, seed: int) -> "PropagatedNetRanker":
        """Make a ranker that is not fitted yet."""
        return PropagatedNetRanker(self, seed)


@dataclass(frozen=True)
class PropagatedInputs:
    """A graph and the states of its configurations as tensors."""

    opcodes: Tensor  # (nodes,) int64
    numeric: Tensor  # (nodes, NUM_NUMERIC) float32
    node: Tensor  # (states,) int64 whose tensor is made or copied; the number of nodes: none
    reader: Tensor  # (states,) int64 for whom it is copied, else the same
    features: Tensor  # (states, len(FEATURES)) float32
    shares: Tensor  # (states, NUM_SHARES) float32
    numbers: np.ndarray  # (distinct configs, places) int32 rows of the above
    instructions: int  # places of instructions, before those of uses
    listed: Tensor  # (distinct configs,) bool: which are the list that the others stand beside


class PropagatedNetRanker(NetRanker[PropagatedNetSettings, PropagatedInputs]):
    """The net on propagated states as a Ranker.

    Its scores depend on the list: on the mean of its sums.
    """

    scaled_tables = ("numeric", "features")
    scores_beside_a_list = True
    reads_program_order = True

    def prepare(self, graph: Graph) -> PropagatedInputs:
        return prepare(graph, self.settings.backend)

    def make_net(self) -> "PropagatedNet":
        return PropagatedNet(self.settings)

    def list_costs(self, graph: Graph) -> np.ndarray:
        """What each state (states,) of the graph's state table adds to a score.

        Scores of two configurations differ by what their states cost. Raises RuntimeError where
        the settings are not so that costs add up.
        """
        if self.net_ is None or not self.settings.adds_up:
            raise RuntimeError("costs add up in a fitted ranker whose settings say adds_up")
        net = cast("PropagatedNet", self.net_)
        with one_thread():
            return net.list_costs(self._scale(self._encoded(graph)))


def prepare(graph: Graph, backend: str) -> PropagatedInputs:
    """The states of solution.features.propagation.state_table as tensors."""
    table = state_tables(backend)(graph)
    return PropagatedInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(numeric_features(graph)),
        node=torch.from_numpy(table.node),
        reader=torch.from_numpy(table.reader),
        features=torch.from_numpy(table.features),
        shares=torch.from_numpy(table.shares),
        numbers=table.numbers,
        instructions=table.instructions,
        listed=torch.from_numpy(graph.listed_distinct),
    )


class StateMlp(nn.Module):
    """Linear, GELU, Linear of [node, reader, state]; the products of a node are taken once.

    Shapes: nodes (nodes, width), node and reader (states,) int64, features (states, values) ->
    (states, width).
    """

    def __init__(self, width: int, values: int) -> None:
        super().__init__()
        self.node = nn.Linear(width, width)
        self.reader = nn.Linear(width, width, bias=False)
        self.state = nn.Linear(values, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, nodes: Tensor, node: Tensor, reader: Tensor, features: Tensor) -> Tensor:
        known = self.node(nodes)[node] + self.reader(nodes)[reader]
        return self.out(functional.gelu(known + self.state(features)))


class PropagatedNet(nn.Module):
    """Scores configurations of whole layout graphs."""

    def __init__(self, settings: PropagatedNetSettings) -> None:
        super().__init__()
        width = settings.width
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.node = Mlp(OPCODE_WIDTH + NUM_NUMERIC, width, width)
        self.instruction = StateMlp(width, len(FEATURES))
        self.copy = StateMlp(width, len(FEATURES))
        self.dropout = nn.Dropout(settings.dropout)
        sums = 2 * width * NUM_SHARES
        self.readout = nn.Linear(sums, 1) if settings.adds_up else Mlp(sums, width, 1)

    def score_batch(self, batch: Sequence[PropagatedInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs): scores of these configurations among each other."""
        columns = [
            self._compare(self.pool(inputs, inputs.numbers[rows]))
            for inputs, rows in zip(batch, configs.T, strict=True)
        ]
        return torch.stack(columns, dim=1)

    def pool(self, inputs: PropagatedInputs, numbers: np.ndarray) -> Tensor:
        """Sums (configs, values) over the states `numbers` (configs, places) of each."""
        nodes = self._describe_nodes(inputs)
        return torch.cat(
            [_add_up(inputs, nodes, mlp, own) for mlp, own in self._kinds(inputs, numbers)], dim=-1
        )

    def _describe_nodes(self, inputs: PropagatedInputs) -> Tensor:
        """(nodes + 1, width); the last is that of what is no node's."""
        nodes = self.node(torch.cat([self.opcode(inputs.opcodes), inputs.numeric], dim=-1))
        return functional.pad(nodes, (0, 0, 0, 1))

    def _kinds(
        self, inputs: PropagatedInputs, numbers: np.ndarray
    ) -> list[tuple[StateMlp, np.ndarray]]:
        """The states (configs, places) of instructions and of copies, and what costs them."""
        return [
            (self.instruction, numbers[:, : inputs.instructions]),
            (self.copy, numbers[:, inputs.instructions :]),
        ]

    def _compare(self, pooled: Tensor, listed: Tensor | None = None) -> Tensor:
        return self.readout(self.dropout(standardise(pooled, listed=listed))).squeeze(-1)

    def count_values(self, inputs: PropagatedInputs) -> int:
        """Places times the values of each."""
        return inputs.numbers.shape[1] * 2

    @torch.inference_mode()
    def score_graph(self, inputs: PropagatedInputs) -> np.ndarray:
        """(configs,), summed a chunk of configurations at a time."""
        self.eval()
        listed = None if inputs.listed.all() else inputs.listed
        return self._compare(self._pool_all(inputs), listed).float().cpu().numpy()

    def _pool_all(self, inputs: PropagatedInputs) -> Tensor:
        step = max(1, CHUNK_VALUES // max(1, inputs.numbers.shape[1]))
        chunks = [
            self.pool(inputs, inputs.numbers[first : first + step])
            for first in range(0, len(inputs.numbers), step)
        ]
        return torch.cat(chunks)

    @torch.inference_mode()
    def list_costs(self, inputs: PropagatedInputs) -> np.ndarray:
        """(states,): the readout is linear and standardising is, so a sum goes through both."""
        self.eval()
        listed = self._pool_all(inputs)[inputs.listed]
        weights = self.readout.get_parameter("weight")[0] * slope(listed - listed.mean(dim=0))
        nodes = self._describe_nodes(inputs)
        costs = np.zeros(len(inputs.features))
        kinds = self._kinds(inputs, inputs.numbers)
        for (mlp, own), weight in zip(kinds, weights.chunk(2), strict=True):
            states = np.unique(own)
            costs[states] = (_weigh(inputs, nodes, mlp, states) @ weight).float().cpu().numpy()
        return costs


def _weigh(inputs: PropagatedInputs, nodes: Tensor, mlp: StateMlp, own: np.ndarray) -> Tensor:
    """(states, values): what `mlp` makes of some states (states,), times what each counts."""
    states = torch.from_numpy(own).to(nodes.device)
    values = mlp(nodes, inputs.node[states], inputs.reader[states], inputs.features[states])
    return (inputs.shares[states][:, :, None] * values[:, None]).flatten(1)


def _add_up(inputs: PropagatedInputs, nodes: Tensor, mlp: StateMlp, numbers: np.ndarray) -> Tensor:
    """Sums (configs, values) of what `mlp` makes of the states (configs, places), weighted."""
    configs, places = numbers.shape
    used, local = np.unique(numbers, return_inverse=True)
    rows = SparseRows(
        starts=np.arange(configs + 1) * places,
        columns=local.reshape(-1),
        values=np.ones(numbers.size, np.float32),
        num_columns=len(used),
    )
    return SparseMatrix(rows, nodes.device) @ _weigh(inputs, nodes, mlp, used)
