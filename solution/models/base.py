"""Define the interface of everything that ranks configurations.

Settings make a ranker (`settings.build(seed)`). It is fitted once and then predicts one score per
configuration, for any graph of the collections that it was fitted on. Nets, boosted trees and
baselines are used in the same way, so tests, cross-validation and ensembles depend on this file
only.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.system.errors import InputError
from solution.system.report import Report, silent


def check_no_options(graph: Graph) -> None:
    """Raise InputError if the graph's configurations contain compile options besides layouts. Nets,
    cost models and features of propagated layouts read layouts only. Feature tables have compile
    options as columns."""
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles, found compile options. Nets, cost "
            "models, propagated or contraction columns and students do not read them. Train others "
            "on such graphs: --experiment linear_ridge_001 --experiment layout_lightgbm_001."
        )


class Ranker(ABC):
    """Scores the configurations of a graph: lower is faster.

    Graphs come prepared (solution.features.preparation): their padding is corrected, and layout
    graphs are pruned to what the settings need around the configurable nodes.

    Scores may be compared only between configurations that were scored together. A ranker may look
    at all of them (how frequent a layout is, how far a sum is from the mean), so the score of a
    configuration may depend on the others; such a ranker says so in its docstring. If a graph marks
    some configurations as the reference list (Graph.listed), a ranker with `scores_beside_a_list`
    scores each of the other configurations as if it were scored with the reference list alone.

    Predictions must not depend on the order of nodes (unless `reads_program_order`) or of
    configurations, identical configurations of a graph must get equal scores, and a loaded ranker
    must predict the same bytes.
    """

    @abstractmethod
    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Fit the ranker on labelled graphs and return it.

        Args:
            graphs: the training graphs; read one at a time, they may not all fit into memory.
            validation: graphs for early stopping; may be empty. Results are never reported
                on these.
            report: called with the progress.
        """

    # True if a score may depend on the reference list (Graph.listed), but on no other configuration
    scores_beside_a_list: bool = False

    # True if the ranker needs operands before their consumers, as the compiler visits them
    reads_program_order: bool = False

    def keep_checkpoints(self, folder: Path) -> None:  # noqa: B027 - most need none
        """Save the state of future fits in an existing folder, and resume from a state saved there.
        A ranker that is fitted in seconds ignores this."""

    @abstractmethod
    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, finite; lower is faster."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the fitted state into an existing folder; the settings are stored beside it."""

    @abstractmethod
    def load(self, folder: Path) -> Self:
        """Restore the state that a ranker of the same settings and seed saved in `folder`; return
        self."""


class CostRanker(Ranker):
    """A ranker whose scores can be explained, because a score is a sum of the costs of states. A
    state is the layout assignment of an instruction, or of an operand as one instruction reads
    it."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """The compiler backend whose layout assignment determines the states: a name in
        solution.features.propagation.backend.BACKENDS."""

    @abstractmethod
    def list_costs(self, graph: Graph) -> np.ndarray:
        """Return the cost (states,) that each state of the graph's state table adds to a score.

        A state is the layout assignment of an instruction, or of an operand as one instruction
        reads it. Scores of two configurations differ by the costs of the states that only one of
        them has.
        """


class RankerSettings(ABC):
    """The settings of a ranker, without its seed; a subclass is a frozen dataclass of plain
    values."""

    @property
    def learns(self) -> bool:
        """True if the ranker is fitted on labelled graphs."""
        return True

    @property
    def needed_hops(self) -> int | None:
        """The largest distance, in edges from a configurable node, of the nodes that the ranker
        needs; None: all nodes."""
        return 1

    @property
    def preparation(self) -> Preparation:
        """The preparation of every graph before the ranker sees it: padding is corrected, nodes are
        pruned."""
        return Preparation(self.needed_hops)

    @property
    def trains_a_net(self) -> bool:
        """True if the ranker, or one that it wraps, trains a net; nets use a GPU if there is
        one."""
        return any(getattr(value, "trains_a_net", False) for value in self._values().values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def quick(self) -> Self:
        """Return settings for a very short training, to test that it runs; the model will be
        poor."""
        return self._change("quick")

    def shortened(self, share: float) -> Self:
        """Return a copy with epochs scaled by `share`; self if share == 1."""
        return self if share == 1 else self._change("shortened", share)

    def _change(self, how: str, *given: Any) -> Self:
        """Return a copy in which each setting that has a method named `how` is replaced by what
        this method returns."""
        values = self._values().items()
        cut = {name: getattr(value, how)(*given) for name, value in values if hasattr(value, how)}
        return dataclasses.replace(self, **cut)  # type: ignore[type-var]

    @abstractmethod
    def build(self, seed: int) -> Ranker:
        """Return an unfitted ranker."""
