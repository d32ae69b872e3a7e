"""Define the contract of everything that ranks configurations.

Settings make a ranker (`settings.build(seed)`). It is fitted once and then predicts one score per
configuration, for any graph of the collections that it was fitted on. Nets, boosted trees and
baselines are used in the same way, so tests, folds and ensembles depend on this file only.
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
    """Raise InputError if the graph's configurations are compile options beside layouts.

    Nets, cost models and propagated columns handle layouts only; tables have options as columns.
    """
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles, found compile options. Nets, cost "
            "models, propagated or contraction columns and students do not read them. Train others "
            "on such graphs: --experiment linear_ridge_001 --experiment layout_lightgbm_001."
        )


class Ranker(ABC):
    """Score the configurations of a graph: lower is faster, comparable inside one list only.

    Graphs come prepared (solution.features.preparation): padding repaired, layout graphs pruned to
    what the settings need around the configurable nodes.

    A *list* is a graph with the configurations to score. A ranker may look at all of them (how
    frequent a layout is, how far a sum is from the mean), so scores of one configuration in two
    lists need not compare; such a ranker says so in its docstring. If a graph marks some of its
    configurations as the reference list (Graph.listed), a ranker with `scores_beside_a_list` scores
    each of the others as if it came alone to that list. Inside a list, predictions must not depend
    on the order of nodes (unless `reads_program_order`) or of configurations, identical
    configurations must get equal scores, and a loaded ranker must predict the same bytes.
    """

    @abstractmethod
    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Learn from labelled graphs.

        Args:
            graphs: the training graphs; read one at a time, they may not all fit into memory.
            validation: graphs for early stopping; may be empty. Never the graphs that are reported.
            report: called with the progress.
        """

    # Whether a score depends on the reference list (Graph.listed) and on no other configurations.
    scores_beside_a_list: bool = False

    # Whether nodes must stand in program order, operands first, as in every file: the compiler
    # visits instructions and operands in that order.
    reads_program_order: bool = False

    def keep_checkpoints(self, folder: Path) -> None:  # noqa: B027 - most need none
        """Keep the state of future fits in an existing folder, and resume from what is there.

        A ranker that is fitted in seconds ignores it.
        """

    @abstractmethod
    def predict(self, graph: Graph) -> np.ndarray:
        """Return the scores (num_configs,) float32, finite."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the fitted state into an existing folder; the settings are stored beside it."""

    @abstractmethod
    def load(self, folder: Path) -> Self:
        """Restore what a ranker of the same settings and seed has saved."""


class CostRanker(Ranker):
    """A ranker whose scores can be explained, because they are sums of the states' costs."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """The compiler's backend: a name in solution.features.propagation.backend.BACKENDS."""

    @abstractmethod
    def list_costs(self, graph: Graph) -> np.ndarray:
        """Return what each state (states,) of the graph's state table adds to a score.

        Scores of two configurations differ by the costs of their states.
        """


class RankerSettings(ABC):
    """Everything about a ranker but its seed; a subclass is a frozen dataclass of plain values."""

    @property
    def learns(self) -> bool:
        """Whether the ranker needs labelled graphs."""
        return True

    @property
    def needed_hops(self) -> int | None:
        """How many edges around the configurable nodes it needs; None: the whole graph."""
        return 1

    @property
    def preparation(self) -> Preparation:
        """How a graph is prepared for it."""
        return Preparation(self.needed_hops)

    @property
    def trains_a_net(self) -> bool:
        """Whether it trains a net, itself or in a wrapped ranker; nets use a GPU if there is
        one."""
        return any(getattr(value, "trains_a_net", False) for value in self._values().values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def quick(self) -> Self:
        """Return settings for a very short training, which shows that it runs, not how good it
        is."""
        return self._change("quick")

    def shortened(self, share: float) -> Self:
        """Return a copy with epochs scaled by `share`; self if share == 1."""
        return self if share == 1 else self._change("shortened", share)

    def _change(self, how: str, *given: Any) -> Self:
        """Return a copy with `how` applied to every setting that has it."""
        values = self._values().items()
        cut = {name: getattr(value, how)(*given) for name, value in values if hasattr(value, how)}
        return dataclasses.replace(self, **cut)  # type: ignore[type-var]

    @abstractmethod
    def build(self, seed: int) -> Ranker:
        """Return an unfitted ranker."""
