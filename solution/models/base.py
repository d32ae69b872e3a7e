"""The contract of everything that ranks configurations.

A ranker is made by its settings (`settings.build(seed)`), fitted once, and then predicts, for any
graph of the collections that it was fitted on, one score a configuration. Nets, boosted trees and
baselines are all used the same way, so tests, folds and ensembles know nothing but this file.
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
    """Raise InputError where the graph's configurations are compile options beside layouts.

    Nets, cost models and propagated columns are of layouts; other tables have options as columns.
    """
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles, found compile options. Nets, cost "
            "models, propagated or contraction columns and students do not read them. Train others "
            "on such graphs: --experiment linear_ridge_001 --experiment layout_lightgbm_001."
        )


class Ranker(ABC):
    """Scores the configurations of a graph: lower is faster, comparable inside one list only.

    Graphs come prepared (solution.features.preparation): padding repaired, layout graphs pruned to
    what the settings need around the configurable nodes.

    A *list* is a graph and the configurations it is asked with. A ranker may look at all of them at
    once (how frequent a layout is among them, how far a sum is from their mean), so scores of the
    same configuration in two lists need not compare; a ranker of which that is so says it in its
    docstring. Where a graph says which of its configurations are the list (Graph.listed), one with
    `scores_beside_a_list` scores each of the others as if it came alone to those. Inside a list,
    predictions must not depend on the order of nodes (but where `reads_program_order`) or of
    configurations, identical configurations must get equal scores, and a loaded ranker must predict
    the same bytes.
    """

    @abstractmethod
    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Learn from labelled graphs.

        Args:
            graphs: what to learn from; read one at a time, they may not all fit in memory.
            validation: what to stop early on; may be empty. Never the graphs that are reported.
            report: called as the work goes on.
        """

    # Whether a score depends on the configurations that are listed (Graph.listed) and on no others.
    scores_beside_a_list: bool = False

    # Whether nodes must stand as in the program, each after what it reads, as in every file: the
    # compiler goes through instructions and their operands in that order.
    reads_program_order: bool = False

    def keep_checkpoints(self, folder: Path) -> None:  # noqa: B027 - most need none
        """Keep the state of the fits to come in an existing folder, and go on from what is there.

        A ranker that is fitted in seconds leaves it empty.
        """

    @abstractmethod
    def predict(self, graph: Graph) -> np.ndarray:
        """The scores (num_configs,) float32, finite."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned into an existing folder; the settings are kept beside it."""

    @abstractmethod
    def load(self, folder: Path) -> Self:
        """Take over what a ranker of the same settings and seed has saved."""


class CostRanker(Ranker):
    """A ranker whose scores say why they are what they are: they add up what states cost."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """Whose layout assignment: a name in solution.features.propagation.backend.BACKENDS."""

    @abstractmethod
    def list_costs(self, graph: Graph) -> np.ndarray:
        """What each state (states,) of solution.features.propagation.state_table adds to a score.

        Scores of two configurations differ by what their states cost.
        """


class RankerSettings(ABC):
    """Everything about a ranker but its seed; a subclass is a frozen dataclass of plain values."""

    @property
    def learns(self) -> bool:
        """Whether it needs labelled graphs to predict."""
        return True

    @property
    def needed_hops(self) -> int | None:
        """How far around the configurable nodes it looks; None: at the whole graph."""
        return 1

    @property
    def preparation(self) -> Preparation:
        """What is done to a graph before it sees it."""
        return Preparation(self.needed_hops)

    @property
    def trains_a_net(self) -> bool:
        """Whether it, or a ranker in it, is a net, which is trained on a GPU where there is one."""
        return any(getattr(value, "trains_a_net", False) for value in self._values().values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def quick(self) -> Self:
        """The same, trained for a moment: shows whether it runs, not how good it is."""
        return self._change("quick")

    def shortened(self, share: float) -> Self:
        """The same with so much of the epochs of its net; itself where `share` is 1."""
        return self if share == 1 else self._change("shortened", share)

    def _change(self, how: str, *given: Any) -> Self:
        """The same where every setting that can be changed so is."""
        values = self._values().items()
        cut = {name: getattr(value, how)(*given) for name, value in values if hasattr(value, how)}
        return dataclasses.replace(self, **cut)  # type: ignore[type-var]

    @abstractmethod
    def build(self, seed: int) -> Ranker:
        """Make a ranker that is not fitted yet."""
