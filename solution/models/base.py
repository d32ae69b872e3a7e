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
from solution.features.propagation.backend import BACKENDS
from solution.system.errors import InputError
from solution.system.report import Report, silent

BACKEND_FILE = "backend.txt"  # file in a cost model's folder


def check_no_options(graph: Graph) -> None:
    """Raise InputError if the graph's configurations have compile options, because only rankers
    that read feature tables support these."""
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles, found compile options. Nets, cost "
            "models, propagated or contraction columns and students do not read them. Train others "
            "on such graphs: --experiment linear_ridge_001 --experiment layout_lightgbm_001."
        )


class Ranker(ABC):
    """A ranker scores the configurations of a graph: lower is faster. Graphs come prepared
    (solution.features.preparation): padding corrected, pruned to the nodes needed.

    Only scores of configurations scored together may be compared, because a score may depend on the
    others (for example, on how frequent a layout is); then the ranker's docstring says so. If a
    graph has a reference list (Graph.listed), a ranker with `scores_beside_a_list` scores every
    other configuration as if it were scored together with the list alone.

    Predictions must not depend on the order of nodes (unless `reads_program_order`) or of
    configurations; identical configurations must get equal scores, and a loaded ranker must predict
    the same bytes.
    """

    @abstractmethod
    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Fit the ranker on labelled graphs, read one at a time to save memory, and return it.
        `validation`: graphs for early stopping (may be empty); rankers without early stopping
        learn from them as well, because reported scores never include these graphs."""

    # True if a score may depend on the reference list (Graph.listed), but on no other configuration
    scores_beside_a_list: bool = False

    # True if the ranker needs operands before their consumers, as the compiler visits them
    reads_program_order: bool = False

    def keep_checkpoints(self, folder: Path) -> None:  # noqa: B027 - most need none
        """Let `fit` save its state in a folder and resume from it; fast rankers ignore this."""

    @abstractmethod
    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, finite; lower is faster."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the fitted state into an existing folder; the settings are stored beside it."""

    @abstractmethod
    def load(self, folder: Path) -> Self:
        """Load the state that a ranker of the same settings and seed saved; return self."""


class CostRanker(Ranker):
    """A ranker that scores a configuration by the sum of the costs of its states. A state is the
    layout assignment of an instruction, or of an operand as one instruction reads it."""

    settings: Any
    # The backend whose layout assignment gives the states: a name in BACKENDS; "" before the ranker
    # is fitted or loaded.
    backend: str = ""

    def save_backend(self, folder: Path) -> None:
        """Write the backend's name into an existing folder."""
        (folder / BACKEND_FILE).write_text(self.backend + "\n", encoding="utf-8")

    def load_backend(self, folder: Path) -> None:
        """Load the name that `save_backend` wrote, or take `settings.backend` if there is no file,
        as in models of earlier versions. Raises InputError if no backend has this name."""
        path, found = folder / BACKEND_FILE, str(self.settings.backend)
        if path.exists():
            found = path.read_bytes().decode(errors="replace").strip()
        if found not in BACKENDS:
            raise InputError(
                f"{path}: expected the name of a backend, {' or '.join(BACKENDS)}, found {found!r}."
            )
        self.backend = found

    @abstractmethod
    def list_costs(self, graph: Graph) -> np.ndarray:
        """Return the cost (states,) that each state of the graph's state table adds to a score."""


class RankerSettings(ABC):
    """The settings of a ranker, without its seed: a frozen dataclass of plain values."""

    @property
    def learns(self) -> bool:
        """True if the ranker is fitted on labelled graphs."""
        return True

    @property
    def needed_hops(self) -> int | None:
        """Pruning keeps nodes within this many edges of a configurable node; None: all nodes."""
        return 1

    @property
    def preparation(self) -> Preparation:
        """How graphs are prepared for the ranker: padding is corrected, nodes are pruned."""
        return Preparation(self.needed_hops)

    @property
    def trains_a_net(self) -> bool:
        """True if the ranker, or one that it wraps, trains a net, on a GPU if there is one."""
        return any(getattr(value, "trains_a_net", False) for value in self._values().values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def quick(self) -> Self:
        """Return settings for a very short training, to test that it runs."""
        return self._change("quick")

    def shortened(self, share: float) -> Self:
        """Return a copy with epochs scaled by `share`; self if share == 1."""
        return self if share == 1 else self._change("shortened", share)

    def _change(self, how: str, *given: Any) -> Self:
        """Return a copy in which only nested settings are changed: each field whose value has a
        method named `how` gets the result of that method for the arguments `given`."""
        values = self._values().items()
        cut = {name: getattr(value, how)(*given) for name, value in values if hasattr(value, how)}
        return dataclasses.replace(self, **cut)  # type: ignore[type-var]

    @abstractmethod
    def build(self, seed: int) -> Ranker:
        """Return an unfitted ranker."""
