"""The LightGBM study: the runtime of a configuration from what is counted of it, row by row.

    rows of solution.papers.study_table ─▶ LightGBM, least squares, lasso or ridge ─▶ runtime

A row is one (graph, configuration), each learned by itself: nothing is compared. Of a kernel, all
but the tile is the same in every row, so a linear model has one order of tiles for all kernels;
trees may combine. Of a layout program the padding and the values of the configuration differ.

The target is the runtime over that of the default configuration, scaled to 0 ... 1. The study does
not say over what it is scaled; here it is over the configurations of each graph, for over all rows
it would be one affine map, which changes no order that trees or least squares predict, and could
not serve what the study wants it for: "the prediction task concerns only relative configuration
rankings". So what the runtime is divided by cancels.

Penalties by grid search and trees by random search, both by the squared error on 4 folds. The folds
are over graphs: rows of one graph in two folds would tell the other its runtimes. The study does
not say what its 25 trials draw: here what `fastslow tune` searches, and of each trial the number of
trees is the one with the least error on the folds.

Source: Li and Mynampati, "Performance Models for Deep Neural Network Training" (CS243, Harvard,
2023), sections II.C and III. What it reports stands in solution/papers/published.toml.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Self

import lightgbm
import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.features.column import Feature
from solution.models.base import RankerSettings, check_no_options
from solution.models.labels import scaled_runtime
from solution.models.linear import LassoSettings, LinearRanker, OrdinarySettings, RidgeSettings
from solution.models.sampling import share_rows
from solution.models.settings import check_choice, check_size
from solution.models.trees.boosted_trees import TrainingTable
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings
from solution.papers import study_table
from solution.system.report import Report, silent

MAX_TRIALS, MAX_FOLDS = 10_000, 1000


@cache
def study_rows(opcodes: str | None) -> PerGraph[np.ndarray]:
    """The study's rows of a graph, kept as long as the graph."""
    return PerGraph(partial(study_table.study_rows, opcodes=opcodes))


@dataclass(frozen=True)
class StudySettings(RankerSettings):
    """What all of the study's models have in common."""

    opcodes: str | None = None  # whose shares are features: None, those "kept" in pruning, or "all"

    def __post_init__(self) -> None:
        check_choice("opcodes", self.opcodes, study_table.OPCODE_CHOICES)

    @property
    def needed_hops(self) -> int | None:
        return None if self.opcodes == "all" else 1


class StudyRows:
    """What a ranker on the study's rows has in common with the others."""

    settings: Any

    def rows_of(self, graph: Graph) -> np.ndarray:
        """The table (distinct configs, columns) float32 that it learns from."""
        check_no_options(graph)
        return study_rows(self.settings.opcodes)(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """The columns of rows_of."""
        return study_table.features_of(graph.collection.kind, self.settings.opcodes)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """What is learned of the configurations (rows,) of one graph."""
        return scaled_runtime(runtimes)


@dataclass(frozen=True)
class StudyTreeSettings(StudySettings, PointwiseSettings):
    """Settings of StudyTreeRanker; those of the trees count where there is one graph, or 0 trials.

    A trial ends when the error on the folds has not fallen for `patience` rounds.
    """

    trials: int = 25  # random settings that are scored
    folds: int = 4  # over graphs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("trials", self.trials, MAX_TRIALS, least=0)
        check_size("folds", self.folds, MAX_FOLDS, least=2)

    def quick(self) -> Self:
        """A tenth of the trees and of the trials."""
        return replace(super().quick(), trials=-(-self.trials // 10))

    def build(self, seed: int) -> "StudyTreeRanker":
        """Make a ranker that is not fitted yet."""
        return StudyTreeRanker(self, seed)


class StudyTreeRanker(StudyRows, PointwiseRanker):
    """Boosted trees that predict the scaled runtime, their settings by random search."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        settings, everything = self.settings, [*graphs, *validation]
        limit = share_rows(settings.max_configs, settings.max_rows, len(everything))
        table = self.make_table([self._rows(graph, limit) for graph in everything])
        parameters, rounds = self.search(table, report)
        self.booster_ = lightgbm.train(parameters, self.make_dataset(table), rounds)
        report(settings.trials + 1, settings.trials + 1)
        return self

    def search(self, table: TrainingTable, report: Report = silent) -> tuple[dict[str, Any], int]:
        """LightGBM's parameters and how many trees, with the least squared error on the folds."""
        from sklearn.model_selection import GroupKFold

        settings = self.settings
        own = settings.parameters(self.seed, table.features.size)
        folds = min(settings.folds, len(table.sizes))
        best = (np.inf, own, settings.rounds)
        if folds < 2:
            return best[1:]
        groups = np.repeat(np.arange(len(table.sizes)), table.sizes)
        parts = list(GroupKFold(folds).split(table.features, groups=groups))
        for trial, drawn in enumerate(draw_settings(settings.trials, self.seed)):
            tried = own | drawn | {"metric": "l2", "feature_pre_filter": False}
            dataset = self.make_dataset(table)
            stop = lightgbm.early_stopping(settings.patience, verbose=False)
            found = lightgbm.cv(tried, dataset, settings.rounds, folds=parts, callbacks=[stop])
            errors = found["valid l2-mean"]
            rounds = int(np.argmin(errors)) + 1
            best = min(best, (errors[rounds - 1], own | drawn, rounds), key=lambda found: found[0])
            report(trial + 1, settings.trials + 1, f"squared error {best[0]:.4f}")
        return best[1:]


def draw_settings(trials: int, seed: int) -> list[dict[str, Any]]:
    """Random settings of trees, in the ranges that `fastslow tune` searches."""
    from scipy.stats import loguniform, uniform
    from sklearn.model_selection import ParameterSampler

    space = {
        "learning_rate": loguniform(1e-2, 2e-1),
        "num_leaves": loguniform(7, 64),
        "min_data_in_leaf": loguniform(5, 101),
        "feature_fraction": uniform(0.2, 0.8),
        "lambda_l2": loguniform(1e-2, 1e2),
    }
    whole = ("num_leaves", "min_data_in_leaf")
    return [
        {name: int(value) if name in whole else float(value) for name, value in drawn.items()}
        for drawn in ParameterSampler(space, trials, random_state=seed)
    ]


class StudyLinearRanker(StudyRows, LinearRanker):
    """A linear model that predicts the scaled runtime."""


@dataclass(frozen=True)
class StudyOrdinarySettings(StudySettings, OrdinarySettings):
    """Ordinary least squares."""

    def build(self, seed: int) -> StudyLinearRanker:
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyRidgeSettings(StudySettings, RidgeSettings):
    """Ridge, its penalty by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        RidgeSettings.__post_init__(self)

    def build(self, seed: int) -> StudyLinearRanker:
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyLassoSettings(StudySettings, LassoSettings):
    """Lasso, its penalty by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        LassoSettings.__post_init__(self)

    def build(self, seed: int) -> StudyLinearRanker:
        """Make a ranker that is not fitted yet."""
        return StudyLinearRanker(self, seed)
