"""Rank by linear regression on the feature tables; the label is a configuration's normalised rank.

These are the baselines that LightGBM is compared with: ordinary least squares, lasso and ridge. A
grid search chooses the penalty by cross-validation in which each graph is in one fold as a whole.
Columns are standardised first.

Source: Hoerl and Kennard, 1970 (ridge); Tibshirani, 1996 (lasso); scikit-learn.
"""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import load_file, save_file

from solution.domain.graph import Graph
from solution.features.column import Feature
from solution.features.nodes import Scaler, fit_scaler
from solution.features.table import distinct_rows, list_features
from solution.models.base import Ranker, RankerSettings
from solution.models.sampling import choose_all_rows, normalised_rank
from solution.models.settings import check_penalties
from solution.system.report import Report, silent

MODEL = "model.safetensors"


@dataclass(frozen=True)
class LinearSettings(RankerSettings):
    """The settings that ordinary least squares, ridge and lasso share."""

    # at most this many distinct configurations of a graph are used for training
    max_configs: int = 1000
    max_rows: int = 1_000_000  # at most about this many rows in the training table
    folds: int = 4  # folds of the cross-validation over graphs that chooses the penalty

    def build(self, seed: int) -> "LinearRanker":
        return LinearRanker(self, seed)

    @abstractmethod
    def estimator(self) -> Any:
        """Return an unfitted regression of scikit-learn."""

    @property
    def penalties(self) -> tuple[float, ...]:
        """The penalties to choose from; empty if the regression has no penalty."""
        return getattr(self, "grid", ())


@dataclass(frozen=True)
class OrdinarySettings(LinearSettings):
    """Ordinary least squares."""

    def estimator(self) -> Any:
        from sklearn.linear_model import LinearRegression

        return LinearRegression()


@dataclass(frozen=True)
class RidgeSettings(LinearSettings):
    """Least squares with a penalty on squared weights."""

    grid: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)

    def __post_init__(self) -> None:
        check_penalties("grid", self.grid)

    def estimator(self) -> Any:
        from sklearn.linear_model import Ridge

        return Ridge()


@dataclass(frozen=True)
class LassoSettings(LinearSettings):
    """Least squares with a penalty on absolute weights, which sets most of them to 0."""

    grid: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_penalties("grid", self.grid)

    def estimator(self) -> Any:
        from sklearn.linear_model import Lasso

        # rows far outnumber columns, so a precomputed Gram matrix of the columns is faster
        return Lasso(max_iter=self.max_iterations, tol=1e-3, precompute=True)


class LinearRanker(Ranker):
    """A ranker whose scores are weighted sums of the feature table's columns. In layout collections
    a score depends on the configurations scored together, because the table counts how frequent
    layouts are among them."""

    scores_beside_a_list = True

    def __init__(self, settings: LinearSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.scaler_: Scaler | None = None
        self.weights_ = np.zeros(0)  # (columns,): weight of each standardised column
        self.penalty_: float | None = None

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        # validation graphs are used as well, because there is no early stopping
        everything = [*graphs, *validation]
        limits = self.settings.max_configs, self.settings.max_rows
        rows = choose_all_rows(everything, *limits, self.seed)
        tables = [self.rows_of(part.graph) for part in rows]
        self.scaler_ = fit_scaler(tables)
        features = self.scaler_(np.concatenate(tables)).astype(np.float64)
        labels = np.concatenate([self.label(part.runtimes) for part in rows])
        groups = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        fitted = self._search(features, labels, groups)
        self.weights_ = np.asarray(fitted.coef_, np.float64)
        report(1, 1)
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        # Sum each row separately: in a matrix product, rounding may depend on the other rows.
        scores = self.contributions(self.rows_of(graph)).sum(axis=1)
        return scores.astype(np.float32)[graph.distinct.inverse]

    def rows_of(self, graph: Graph) -> np.ndarray:
        """Return the feature table (distinct configs, columns) float32 of a graph."""
        return distinct_rows(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """Return the description of each column of the table that rows_of returns."""
        return list_features(graph)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """Return the labels (rows,) to regress, given the runtimes (rows,) of one graph."""
        return normalised_rank(runtimes)

    def contributions(self, rows: np.ndarray) -> np.ndarray:
        """Return standardised columns times weights (rows, columns); a row sums to its score."""
        if self.scaler_ is None:
            raise RuntimeError("fit the ranker before it predicts")
        return self.scaler_(rows).astype(np.float64) * self.weights_

    def save(self, folder: Path) -> None:
        if self.scaler_ is None:
            raise RuntimeError("fit the ranker before it is saved")
        arrays = {
            "mean": self.scaler_.mean,
            "scale": self.scaler_.scale,
            "weights": self.weights_,
            "penalty": np.array([] if self.penalty_ is None else [self.penalty_], np.float64),
        }
        save_file(arrays, folder / MODEL)

    def load(self, folder: Path) -> Self:
        arrays = load_file(folder / MODEL)
        self.scaler_ = Scaler(arrays["mean"], arrays["scale"])
        self.weights_ = arrays["weights"]
        self.penalty_ = float(arrays["penalty"][0]) if len(arrays["penalty"]) else None
        return self

    def _search(self, features: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> Any:
        """Return the regression with the best penalty on held-out graphs, fitted to all rows."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import GridSearchCV, GroupKFold

        estimator, penalties = self.settings.estimator(), self.settings.penalties
        folds = min(self.settings.folds, groups[-1] + 1)
        if not penalties:
            return estimator.fit(features, labels)
        if folds < 2:  # too few graphs to hold one out: use the middle penalty
            return estimator.set_params(alpha=penalties[len(penalties) // 2]).fit(features, labels)
        search = GridSearchCV(
            estimator,
            {"alpha": list(penalties)},
            cv=GroupKFold(folds),
            scoring="neg_mean_squared_error",
        )
        with warnings.catch_warnings():  # hide warnings: collinear columns converge slowly
            warnings.simplefilter("ignore", ConvergenceWarning)
            search.fit(features, labels, groups=groups)
        self.penalty_ = float(search.best_params_["alpha"])
        return search.best_estimator_
