"""Train boosted trees on the feature tables: what all kinds of them share.

A kind defines the training rows and their labels. Whatever the loss, early stopping uses the
collection's score on the validation graphs.

Source: LightGBM (Ke et al., NIPS 2017). An entry without any net was 11th in the competition: it is
cheap, and the most different member of an ensemble with nets.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import lightgbm
import numpy as np

from solution.domain.graph import Graph
from solution.domain.metrics import score_ranking
from solution.features.column import Feature
from solution.features.table import distinct_rows, list_features
from solution.models.base import Ranker, RankerSettings
from solution.models.sampling import choose_rows, share_rows
from solution.models.trees.forest_text import read_forest
from solution.system.report import Report, silent

MODEL = "model.txt"
SMALL_TABLE = 1 << 20


@dataclass(frozen=True)
class TreeSettings(RankerSettings):
    """Settings of all kinds; names are LightGBM's if it has the parameter."""

    rounds: int = 400
    patience: int = 60  # rounds without a better validation score before it stops
    learning_rate: float = 0.05
    num_leaves: int = 15
    min_data_in_leaf: int = 20
    feature_fraction: float = 0.5
    lambda_l2: float = 1.0
    max_configs: int = 1000  # distinct configurations of a graph used for training, at most
    max_rows: int = 1_000_000  # rows of the training table, and of the validation table, at most

    def quick(self) -> Self:
        """Return the settings with a tenth of the trees."""
        return replace(self, rounds=-(-self.rounds // 10))

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return LightGBM's parameters, deterministic.

        Args:
            values: rows times columns of the table.
        """
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_data_in_leaf,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.lambda_l2,
            "metric": "none",
            "seed": seed,
            "num_threads": count_threads(values),
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class GraphRows:
    """The distinct configurations of a labelled graph."""

    features: np.ndarray  # (rows, columns) float32
    runtimes: np.ndarray  # (rows,)
    collection: str


@dataclass(frozen=True)
class TrainingTable:
    """The training rows of all graphs, concatenated."""

    features: np.ndarray  # (rows, columns) float32
    labels: np.ndarray  # (rows,)
    sizes: list[int]  # rows of each graph


class BoostedTrees(Ranker):
    """Train one booster; a subclass defines the rows and turns its output into scores.

    Scores of layouts depend on the list, because the table has layout frequencies in it.
    """

    grouped: ClassVar[bool] = False  # whether the loss compares rows of a graph

    def __init__(self, settings: Any, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.booster_: lightgbm.Booster | None = None

    @abstractmethod
    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        """Return the training table of the graphs."""

    @abstractmethod
    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        """Return scores (rows,) of one graph, lower is faster, from the trees' output for its
        rows."""

    @abstractmethod
    def questions(self, features: np.ndarray) -> np.ndarray:
        """Return the rows to predict for a graph with `features` (rows, columns).

        Validation graphs use them, too; `score` turns the output into scores.
        """

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        settings = self.settings
        limit = share_rows(settings.max_configs, settings.max_rows, len(graphs))
        train = self.make_table([self._rows(graph, limit) for graph in graphs])
        dataset = self.make_dataset(train)
        callbacks = [_reporter(report, settings.rounds)]
        valid_sets, metric = [], None
        if len(validation):
            limit = share_rows(settings.max_configs, settings.max_rows, len(validation))
            held_out = [self._rows(graph, limit) for graph in validation]
            questions = [self.questions(graph.features) for graph in held_out]
            sizes = [len(part) for part in questions]
            table = TrainingTable(np.concatenate(questions), np.zeros(sum(sizes)), sizes)
            valid_sets = [self.make_dataset(table, dataset)]
            callbacks.insert(0, lightgbm.early_stopping(settings.patience, verbose=False))
            metric = self._make_metric(held_out, sizes)
        self.booster_ = lightgbm.train(
            settings.parameters(self.seed, train.features.size),
            dataset,
            num_boost_round=settings.rounds,
            valid_sets=valid_sets,
            valid_names=["validation"] if valid_sets else None,
            feval=metric,
            callbacks=callbacks,
        )
        return self

    def make_dataset(
        self, table: TrainingTable, reference: lightgbm.Dataset | None = None
    ) -> lightgbm.Dataset:
        """Return a LightGBM dataset; a validation set takes the bins of its training set."""
        group = table.sizes if self.grouped else None
        return lightgbm.Dataset(table.features, table.labels, group=group, reference=reference)

    def predict(self, graph: Graph) -> np.ndarray:
        scores = self.score_rows(self.rows_of(graph))
        return np.asarray(scores, np.float32)[graph.distinct.inverse]

    def rows_of(self, graph: Graph) -> np.ndarray:
        """Return the table (distinct configs, columns) float32 of a graph."""
        return distinct_rows(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """Return the columns of rows_of."""
        return list_features(graph)

    def score_rows(self, features: np.ndarray) -> np.ndarray:
        """Return scores (rows,) of the rows of one graph's table."""
        return self.score(self.predict_rows(self.questions(features)), len(features))

    def predict_rows(self, rows: np.ndarray, **options: Any) -> np.ndarray:
        """Return the trees' output for `rows`; `options` are LightGBM's, such as pred_contrib."""
        booster = self.fitted()
        return np.asarray(
            booster.predict(
                rows,
                num_iteration=booster.best_iteration,
                num_threads=count_threads(rows.size),
                **options,
            )
        )

    def fitted(self) -> lightgbm.Booster:
        """The booster; RuntimeError before the fit."""
        if self.booster_ is None:
            raise RuntimeError("fit the ranker before it predicts or is saved")
        return self.booster_

    def save(self, folder: Path) -> None:
        booster = self.fitted()
        text = booster.model_to_string(num_iteration=booster.best_iteration)
        (folder / MODEL).write_text(
            text, encoding="utf-8"
        )  # LightGBM's writer does not notice full disks

    def load(self, folder: Path) -> Self:
        self.booster_ = lightgbm.Booster(model_str=read_forest(folder / MODEL).text)
        return self

    def _rows(self, graph: Graph, limit: int) -> GraphRows:
        rows = choose_rows(graph, limit, self.seed)
        return GraphRows(self.rows_of(rows.graph), rows.runtimes, graph.collection.name)

    def _make_metric(self, graphs: Sequence[GraphRows], sizes: Sequence[int]) -> Any:
        borders = np.cumsum(sizes)[:-1]

        def metric(predicted: np.ndarray, dataset: lightgbm.Dataset) -> tuple[str, float, bool]:
            scores = [
                score_ranking(
                    graph.collection, self.score(part, len(graph.runtimes)), graph.runtimes
                )
                for graph, part in zip(graphs, np.split(predicted, borders), strict=True)
            ]
            return "score", float(np.mean(scores)), True

        return metric


def count_threads(values: int) -> int:
    """Return how many threads a table of `values` numbers is worth; 0 means all.

    A small table gains little from a second thread, and on a busy machine threads that wait for
    each other take three times as long as one.
    """
    return 1 if values < SMALL_TABLE else 0


def _reporter(report: Report, rounds: int) -> Any:
    def callback(environment: Any) -> None:
        done, results = environment.iteration + 1, environment.evaluation_result_list
        if results:
            score = float(results[0][2])
            report(done, rounds, f"validation {score:.3f}", score)
        else:
            report(done, rounds)

    return callback
