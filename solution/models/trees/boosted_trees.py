"""Boosted trees on the feature tables: what all kinds of them share.

A kind says what one training row is and what the trees predict of it. Whatever the loss is,
training stops on the collection's own score of the validation graphs.

Source: LightGBM (Ke et al., NIPS 2017). One without any net was 11th in the competition: cheap, and
the most different member of an ensemble with nets.
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
    """Settings of all kinds; names are LightGBM's own where it has one."""

    rounds: int = 400
    patience: int = 60  # rounds without a better validation score before it stops
    learning_rate: float = 0.05
    num_leaves: int = 15
    min_data_in_leaf: int = 20
    feature_fraction: float = 0.5
    lambda_l2: float = 1.0
    max_configs: int = 1000  # distinct configurations of a graph to learn from, at most
    max_rows: int = 1_000_000  # of the table that is learned from, and of what stops it early

    def quick(self) -> Self:
        """A tenth of the trees."""
        return replace(self, rounds=-(-self.rounds // 10))

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """LightGBM's parameters, deterministic.

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
    """What LightGBM learns from, the graphs one after the other."""

    features: np.ndarray  # (rows, columns) float32
    labels: np.ndarray  # (rows,)
    sizes: list[int]  # rows of each graph


class BoostedTrees(Ranker):
    """Trains one booster; a subclass says on what, and how its output becomes scores.

    Scores of layouts depend on the list: the table counts how frequent a layout is in it.
    """

    grouped: ClassVar[bool] = False  # the loss compares the rows of a graph

    def __init__(self, settings: Any, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.booster_: lightgbm.Booster | None = None

    @abstractmethod
    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        """What is learned of the graphs."""

    @abstractmethod
    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        """Scores (rows,), lower is faster, of one graph from what the trees say of its rows."""

    @abstractmethod
    def questions(self, features: np.ndarray) -> np.ndarray:
        """The rows that the trees are asked about to score a graph with `features` (rows, columns).

        Of validation graphs too, whose output `score` turns into scores.
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
        """What LightGBM trains on; a validation set gets the bins of its training set."""
        group = table.sizes if self.grouped else None
        return lightgbm.Dataset(table.features, table.labels, group=group, reference=reference)

    def predict(self, graph: Graph) -> np.ndarray:
        scores = self.score_rows(self.rows_of(graph))
        return np.asarray(scores, np.float32)[graph.distinct.inverse]

    def rows_of(self, graph: Graph) -> np.ndarray:
        """The table (distinct configs, columns) float32 that it learns from."""
        return distinct_rows(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """The columns of rows_of."""
        return list_features(graph)

    def score_rows(self, features: np.ndarray) -> np.ndarray:
        """Scores (rows,) of the rows of one graph's table."""
        return self.score(self.predict_rows(self.questions(features)), len(features))

    def predict_rows(self, rows: np.ndarray, **options: Any) -> np.ndarray:
        """What the trees say of `rows`; `options` are LightGBM's, such as pred_contrib."""
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
        """The booster; RuntimeError where there is none yet."""
        if self.booster_ is None:
            raise RuntimeError("fit the ranker before it predicts or is saved")
        return self.booster_

    def save(self, folder: Path) -> None:
        booster = self.fitted()
        text = booster.model_to_string(num_iteration=booster.best_iteration)
        (folder / MODEL).write_text(
            text, encoding="utf-8"
        )  # its own writer does not see full disks

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
    """How many threads a table of `values` numbers is worth; 0 is all.

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
