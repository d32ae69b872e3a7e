"""A net with two views of a configuration: what it asks for, and what the compiler makes of it.

    what is asked ── colours of the layout net ──▶ score ──┐
    what is made ── states of the propagated net ─▶ score ─┴─▶ sum

The first (solution.models.layout.layout_gnn) sees the requests and what lies around them, and needs
no rules of a compiler; the second (solution.models.layout.propagated_net) sees the layouts and
copies of the whole program, as far as our rules are those of the compiler that made it. They learn
together, each what the other leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from solution.domain.graph import Graph
from solution.features.propagation.backend import BACKENDS
from solution.models.base import RankerSettings
from solution.models.layout.layout_gnn import LayoutGnn, LayoutGnnSettings, LayoutInputs
from solution.models.layout.layout_gnn import prepare as prepare_asked
from solution.models.layout.propagated_net import (
    TRAINING,
    PropagatedInputs,
    PropagatedNet,
    PropagatedNetSettings,
)
from solution.models.layout.propagated_net import prepare as prepare_made
from solution.models.layout.steps import Structure
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.training_loop import TrainingSettings
from solution.models.settings import check_choice


@dataclass(frozen=True)
class TwoViewSettings(RankerSettings):
    """Settings of the net with two views."""

    backend: str = "cpu"  # whose layout assignment: a name in features.propagation.backend.BACKENDS
    width: int = 64  # of nodes, pairs, colours and states
    rounds: int = 2  # of convolution on colours
    hops: int = 1  # kept around the configurable nodes, for the colours
    dropout: float = 0.3  # of the sums
    training: TrainingSettings = TRAINING

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)

    @property
    def needed_hops(self) -> int | None:
        """The whole graph: what is asked of one tensor reaches as far as it is handed on."""
        return None

    def build(self, seed: int) -> "TwoViewRanker":
        """Make a ranker that is not fitted yet."""
        return TwoViewRanker(self, seed)


@dataclass(frozen=True)
class TwoViewInputs(PropagatedInputs):
    """A whole graph with the states of its configurations, and what the layout net takes of it."""

    asked_opcodes: Tensor  # (kept nodes,) int64, and so on: the fields of LayoutInputs
    asked_numeric: Tensor
    pair_tokens: Tensor
    pair_features: Tensor
    structure: Structure

    @property
    def asked(self) -> LayoutInputs:
        """What the layout net takes."""
        return LayoutInputs(
            opcodes=self.asked_opcodes, numeric=self.asked_numeric, pair_tokens=self.pair_tokens,
            pair_features=self.pair_features, listed=self.listed, structure=self.structure,
        )  # fmt: skip


class TwoViewRanker(NetRanker[TwoViewSettings, TwoViewInputs]):
    """The net with two views as a Ranker.

    Its scores depend on the list: on how frequent layouts are in it, and on the mean of its sums.
    """

    scaled_tables = ("numeric", "features", "asked_numeric", "pair_features")
    scores_beside_a_list = True
    reads_program_order = True

    def prepare(self, graph: Graph) -> TwoViewInputs:
        asked = prepare_asked(graph, "neighbourhood", self.settings.hops)
        made = prepare_made(graph, self.settings.backend)
        return TwoViewInputs(
            **vars(made), asked_opcodes=asked.opcodes, asked_numeric=asked.numeric,
            pair_tokens=asked.pair_tokens, pair_features=asked.pair_features,
            structure=asked.structure,
        )  # fmt: skip

    def make_net(self) -> "TwoViewNet":
        return TwoViewNet(self.settings)


class TwoViewNet(nn.Module):
    """Scores configurations of whole layout graphs."""

    def __init__(self, settings: TwoViewSettings) -> None:
        super().__init__()
        width, dropout = settings.width, settings.dropout
        self.asked = LayoutGnn(
            LayoutGnnSettings(width=width, rounds=(width,) * settings.rounds, dropout=dropout)
        )
        self.made = PropagatedNet(PropagatedNetSettings(width=width, dropout=dropout))

    def score_batch(self, batch: Sequence[TwoViewInputs], configs: np.ndarray) -> Tensor:
        """(configs, graphs): scores of these configurations among each other."""
        asked = self.asked.score_batch([inputs.asked for inputs in batch], configs)
        return asked + self.made.score_batch(batch, configs)

    def count_values(self, inputs: TwoViewInputs) -> int:
        """Those of both views."""
        return self.asked.count_values(inputs.asked) + self.made.count_values(inputs)

    def score_graph(self, inputs: TwoViewInputs) -> np.ndarray:
        """(configs,), of all configurations beside those that are listed."""
        self.eval()
        return self.asked.score_graph(inputs.asked) + self.made.score_graph(inputs)
