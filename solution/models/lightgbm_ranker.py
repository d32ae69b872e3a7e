"""Boosted trees on the feature tables, trained to rank the configurations inside each graph.

Source: LambdaMART (Burges, "From RankNet to LambdaRank to LambdaMART", 2010) as in LightGBM (Ke et
al., 2017). A LightGBM without any net was 11th in the competition: cheap, and the most different
member of an ensemble with nets.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import lightgbm
import numpy as np
from pydantic import TypeAdapter
from scipy.stats import rankdata

from solution.data.graphs import PerGraph
from solution.features.layout_table import layout_table
from solution.features.tile_table import tile_table
from solution.graph import Graph
from solution.metrics import score_ranking
from solution.models.base import Ranker, Report, silent
from solution.models.sampling import choose_rows, deduplicated

SMALL_TABLE = 1 << 20


@dataclass(frozen=True)
class LightGBMSettings:
    """Settings of LightGBMRanker; names are LightGBM's own where it has one."""

    rounds: int = 400
    patience: int = 60  # rounds without a better validation score before it stops
    learning_rate: float = 0.05
    num_leaves: int = 15
    min_data_in_leaf: int = 20
    feature_fraction: float = 0.5
    lambda_l2: float = 1.0
    relevance_levels: int = 31  # the ranks of a graph are binned into so many grades
    max_configs: int = 1000  # distinct configurations of a graph to learn from

    def build(self, seed: int) -> "LightGBMRanker":
        """Make a ranker that is not fitted yet."""
        return LightGBMRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """LightGBM's parameters: lambdarank over whole lists with linear gains, deterministic.

        Args:
            values: rows times columns of the table.
        """
        return {
            "objective": "lambdarank",
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_data_in_leaf,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.lambda_l2,
            "label_gain": list(range(self.relevance_levels)),
            "lambdarank_truncation_level": self.max_configs,
            "metric": "none",
            "seed": seed,
            "num_threads": count_threads(values),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class Rows:
    """The table of several graphs, one after the other."""

    features: np.ndarray  # (rows, columns) float32
    relevance: np.ndarray  # (rows,) int32: 0 slowest
    runtimes: list[np.ndarray]  # (configs of the graph,) each
    collections: list[str]

    @property
    def sizes(self) -> list[int]:
        return [len(runtimes) for runtimes in self.runtimes]


class LightGBMRanker(Ranker):
    """Lambdarank on the layout or tile table, whichever the graphs are."""

    def __init__(self, settings: LightGBMSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.booster_: lightgbm.Booster | None = None

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        settings = self.settings
        train = self._stack(graphs)
        dataset = lightgbm.Dataset(
            train.features, train.relevance, group=train.sizes, free_raw_data=True
        )
        callbacks = [_reporter(report, settings.rounds)]
        valid_sets, metric = [], None
        if len(validation):
            held_out = self._stack(validation)
            valid_sets = [
                dataset.create_valid(held_out.features, held_out.relevance, group=held_out.sizes)
            ]
            callbacks.insert(0, lightgbm.early_stopping(settings.patience, verbose=False))
            metric = _mean_score(held_out)
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

    def predict(self, graph: Graph) -> np.ndarray:
        if self.booster_ is None:
            raise RuntimeError("fit the ranker before it predicts")
        table = _table(graph)
        relevance = self.booster_.predict(
            table,
            num_iteration=self.booster_.best_iteration,
            num_threads=count_threads(table.size),
        )
        return -np.asarray(relevance, np.float32)[deduplicated(graph).inverse]

    def save(self, folder: Path) -> None:
        if self.booster_ is None:
            raise RuntimeError("fit the ranker before it is saved")
        self.booster_.save_model(folder / "model.txt", num_iteration=self.booster_.best_iteration)
        record = {"settings": asdict(self.settings), "seed": self.seed}
        (folder / "settings.json").write_text(json.dumps(record, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        record = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        ranker = cls(
            TypeAdapter(LightGBMSettings).validate_python(record["settings"]), record["seed"]
        )
        ranker.booster_ = lightgbm.Booster(model_file=folder / "model.txt")
        return ranker

    def _stack(self, graphs: Sequence[Graph]) -> Rows:
        tables, relevance, runtimes, collections = [], [], [], []
        for graph in graphs:
            rows = choose_rows(graph, self.settings.max_configs, self.seed)
            tables.append(_table(rows.graph))
            relevance.append(grade(rows.runtimes, self.settings.relevance_levels))
            runtimes.append(rows.runtimes)
            collections.append(graph.collection.name)
        return Rows(np.concatenate(tables), np.concatenate(relevance), runtimes, collections)


def count_threads(values: int) -> int:
    """How many threads a table of `values` numbers is worth; 0 is all.

    A small table gains little from a second thread, and on a busy machine threads that wait for
    each other take three times as long as one.
    """
    return 1 if values < SMALL_TABLE else 0


def grade(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Grades (configs,) int32 from runtimes: levels - 1 for the fastest, 0 for the slowest."""
    position = (rankdata(runtimes) - 0.5) / len(runtimes)
    return (levels - 1 - np.floor(position * levels)).astype(np.int32)


def _compute_table(graph: Graph) -> np.ndarray:
    """A row for each distinct configuration."""
    table = layout_table if graph.collection.kind == "layout" else tile_table
    return table(graph).to_numpy(order="c")[deduplicated(graph).first]


_table = PerGraph(_compute_table)


def _mean_score(rows: Rows) -> Any:
    borders = np.cumsum(rows.sizes)[:-1]

    def metric(predicted: np.ndarray, dataset: lightgbm.Dataset) -> tuple[str, float, bool]:
        scores = [
            score_ranking(name, -part, runtimes)
            for name, part, runtimes in zip(
                rows.collections, np.split(predicted, borders), rows.runtimes, strict=True
            )
        ]
        return "score", float(np.mean(scores)), True

    return metric


def _reporter(report: Report, rounds: int) -> Any:
    def callback(environment: Any) -> None:
        done, results = environment.iteration + 1, environment.evaluation_result_list
        if results:
            score = float(results[0][2])
            report(done, rounds, f"validation {score:.3f}", score)
        else:
            report(done, rounds)

    return callback
