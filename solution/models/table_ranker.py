"""Make a ranker from two functions on feature tables, fit and score: the shortest way to add one.

A subclass of TableSettings defines how weights are fitted and how rows are scored. The table has
one row for each distinct configuration of a graph. Columns are standardised and centred inside each
graph, because only differences between its configurations matter. The label is a configuration's
rank in its graph.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler, fit_scaler
from solution.features.table import distinct_rows
from solution.models.base import Ranker, RankerSettings
from solution.models.sampling import choose_all_rows, normalised_rank
from solution.system.errors import InputError
from solution.system.report import Report, silent

MODEL = "model.npz"
NUMBERS = "buif"  # numpy's letters for boolean, unsigned, integer and floating types


@dataclass(frozen=True)
class TableSettings(RankerSettings):
    """Settings of a table ranker; the fields of a subclass are further settings."""

    # at most this many distinct configurations of a graph are used for training
    max_configs: int = 1000
    max_rows: int = 1_000_000  # at most about this many rows in the training table

    @abstractmethod
    def fit_rows(self, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return weights, any array, fitted to rows (rows, columns) and ranks (rows,), from -0.5 (a
        graph's fastest configuration) to 0.5."""

    @abstractmethod
    def score_rows(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return scores (rows,) of rows (rows, columns) under the weights; lower is faster."""

    def build(self, seed: int) -> "TableRanker":
        return TableRanker(self, seed)


class TableRanker(Ranker):
    """A ranker that applies fit_rows and score_rows of its TableSettings to feature tables. A score
    depends on the configurations scored together: columns are centred on the mean over them, and
    count how frequent layouts are among them."""

    def __init__(self, settings: TableSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.scaler_: Scaler | None = None
        self.weights_ = np.zeros(0)

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        # validation graphs are used as well, because there is no early stopping
        everything = [*graphs, *validation]
        limits = self.settings.max_configs, self.settings.max_rows
        parts = choose_all_rows(everything, *limits, self.seed)
        tables = [distinct_rows(part.graph) for part in parts]
        self.scaler_ = fit_scaler(tables)
        rows = np.concatenate([self._scale(table) for table in tables])
        ranks = np.concatenate([normalised_rank(part.runtimes) - 0.5 for part in parts])
        self.weights_ = self._fit_rows(rows, ranks)
        report(1, 1)
        return self

    def _fit_rows(self, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        weights = self.settings.fit_rows(rows, ranks)
        try:
            return np.asarray(weights)
        except ValueError as error:
            kind = type(self.settings).__name__
            raise InputError(f"fit_rows of {kind} returned what is no array: {error}.") from error

    def predict(self, graph: Graph) -> np.ndarray:
        rows = self._scale(distinct_rows(graph))
        scores = np.asarray(self.settings.score_rows(rows, self.weights_))
        if scores.shape != (len(rows),) or scores.dtype.kind not in NUMBERS:
            raise InputError(  # with a wrong shape, rows would get the scores of other rows
                f"score_rows of {type(self.settings).__name__} returned an array {scores.shape} of "
                f"{scores.dtype} for the {len(rows)} rows of {graph.name}, expected one number a "
                "row."
            )
        return _narrow(scores)[graph.distinct.inverse]

    def save(self, folder: Path) -> None:
        if self.scaler_ is None:
            raise RuntimeError("fit the ranker before it is saved")
        arrays = {"mean": self.scaler_.mean, "scale": self.scaler_.scale, "weights": self.weights_}
        np.savez(folder / MODEL, allow_pickle=False, **arrays)

    def load(self, folder: Path) -> Self:
        with np.load(folder / MODEL, allow_pickle=False) as arrays:
            self.scaler_ = Scaler(arrays["mean"], arrays["scale"])
            self.weights_ = arrays["weights"]
        return self

    def _scale(self, table: np.ndarray) -> np.ndarray:
        if self.scaler_ is None:
            raise RuntimeError("fit the ranker before it predicts")
        rows = self.scaler_(table).astype(np.float64)
        return np.asarray(rows - rows.mean(axis=0))


def _narrow(scores: np.ndarray) -> np.ndarray:
    """Return scores (rows,) as float32. Integers that would become equal are replaced by ranks."""
    with np.errstate(over="ignore"):  # no warning: infinite scores are refused later
        narrowed = scores.astype(np.float32)
    if scores.dtype.kind in "iu":
        values, ranks = np.unique(scores, return_inverse=True)
        if len(np.unique(narrowed)) < len(values):
            return ranks.astype(np.float32)
    return narrowed
