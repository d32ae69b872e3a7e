"""The LightGBM study: predict the runtime of each configuration alone from aggregated features.

    rows of solution.papers.study_table ─▶ LightGBM, least squares, lasso or ridge ─▶ runtime

A row is one (graph, configuration), and rows are never compared. For a kernel, only the tile
differs between its rows, so a linear model ranks tiles in the same order for all kernels; trees
can combine features. For a layout program, the padding and the configuration's values differ.

The target is the runtime divided by the default configuration's, scaled to 0 ... 1. The study does
not say over which rows it scales. Here it is over the configurations of each graph: a scale over
all rows would be a single affine map, which changes no order that trees or least squares predict,
and would not serve the study's purpose: "the prediction task concerns only relative configuration
rankings". Dividing by the default's runtime therefore has no effect.

Penalties are found by grid search and trees by random search, both by the squared error on 4 folds.
The folds are over graphs: with rows of one graph in two folds, runtimes would leak. The study does
not say what its 25 trials draw: here they draw what `fastslow tune` searches, and the number of
trees of a trial is the one with the least error on the folds.

Source: Li and Mynampati, "Performance Models for Deep Neural Network Training" (CS243, Harvard,
2023), sections II.C and III. Its reported numbers stand in solution/papers/published.toml.
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
from solution.models.linear import LassoSettings, LinearRanker, OrdinarySettings, RidgeSettings
from solution.models.sampling import scaled_runtime, share_rows
from solution.models.settings import check_choice, check_size
from solution.models.trees.boosted_trees import TrainingTable
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings
from solution.papers import study_table
from solution.system.report import Report, silent

MAX_TRIALS, MAX_FOLDS = 10_000, 1000


@cache
def study_rows(opcodes: str | None) -> PerGraph[np.ndarray]:
    """Return the study's rows of a graph, cached as long as the graph exists."""
    return PerGraph(partial(study_table.study_rows, opcodes=opcodes))


@dataclass(frozen=True)
class StudySettings(RankerSettings):
    """Common settings of all models of the study."""

    # opcode shares as features: None, "kept" (of nodes that pruning keeps), or "all"
    opcodes: str | None = None

    def __post_init__(self) -> None:
        check_choice("opcodes", self.opcodes, study_table.OPCODE_CHOICES)

    @property
    def needed_hops(self) -> int | None:
        return None if self.opcodes == "all" else 1


class StudyRows:
    """Common methods of rankers on the study's rows."""

    settings: Any

    def rows_of(self, graph: Graph) -> np.ndarray:
        """Return the feature table (distinct configs, columns) float32."""
        check_no_options(graph)
        return study_rows(self.settings.opcodes)(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """Return the names of the columns of rows_of."""
        return study_table.features_of(graph.collection.kind, self.settings.opcodes)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """Return the targets of the configurations (rows,) of one graph."""
        return scaled_runtime(runtimes)


@dataclass(frozen=True)
class StudyTreeSettings(StudySettings, PointwiseSettings):
    """Settings of StudyTreeRanker; the trees' settings apply if there is one graph, or 0 trials.

    A trial ends when the error on the folds has not fallen for `patience` rounds.
    """

    trials: int = 25  # number of random settings
    folds: int = 4  # over graphs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("trials", self.trials, MAX_TRIALS, least=0)
        check_size("folds", self.folds, MAX_FOLDS, least=2)

    def quick(self) -> Self:
        """Return a copy with a tenth of the trees and of the trials."""
        return replace(super().quick(), trials=-(-self.trials // 10))

    def build(self, seed: int) -> "StudyTreeRanker":
        """Return an unfitted ranker."""
        return StudyTreeRanker(self, seed)


class StudyTreeRanker(StudyRows, PointwiseRanker):
    """Boosted trees that predict the scaled runtime; their settings are found by random search."""

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
        """Return LightGBM's parameters and number of trees with the least squared error on the
        folds."""
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
    """Draw random settings of trees, in the ranges that `fastslow tune` searches."""
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
        """Return an unfitted ranker."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyRidgeSettings(StudySettings, RidgeSettings):
    """Ridge regression; the penalty is found by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        RidgeSettings.__post_init__(self)

    def build(self, seed: int) -> StudyLinearRanker:
        """Return an unfitted ranker."""
        return StudyLinearRanker(self, seed)


@dataclass(frozen=True)
class StudyLassoSettings(StudySettings, LassoSettings):
    """Lasso; the penalty is found by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        LassoSettings.__post_init__(self)

    def build(self, seed: int) -> StudyLinearRanker:
        """Return an unfitted ranker."""
        return StudyLinearRanker(self, seed)
