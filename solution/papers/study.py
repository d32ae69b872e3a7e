"""The LightGBM study: predict the runtime of each configuration alone from aggregated features.

    rows of study_rows ─▶ LightGBM, least squares, lasso or ridge ─▶ runtime

A row is one (graph, configuration), and rows are never compared. Its features are:

    tile      140 node features, mean over the nodes, and the 24 numbers of the tile
    layout    the padding of all tensors with a layout, how often each value occurs in the
              configuration's layout features, and how many nodes are convolutions, dots, reshapes
    either    optionally, the share of the nodes that have each opcode: of the nodes that pruning
              keeps, or of these nodes and, separately, of the nodes that it drops

The rows of a kernel differ only in the tile, so a linear model ranks tiles in the same order for
all kernels; trees can combine features. Padding is to the register tile, 128 by 8: the minor-most
dimension of an output is padded to a multiple of 128, the next one to a multiple of 8. If a
configuration gives a node no layout, the node has the program's layout. Nodes whose layout no
configuration sets have the same padding in all configurations and are left out. In the competition
every convolution, dot and reshape is configurable, so configurable nodes are counted.

The target is the runtime, scaled to 0 ... 1 over the configurations of each graph. The study first
divides the runtime by the default configuration's runtime; the scaling cancels this division. The
study does not say over which rows it scales. A scale over all rows would be a single affine map,
which changes no order that trees or least squares predict.

Penalties are found by grid search and trees by random search, both by the squared error on 4 folds.
The folds are over graphs: with rows of one graph in two folds, runtimes would leak. The study does
not say which settings its 25 trials draw: here they are the settings that `fastslow tune` searches.
A trial has the number of trees with the smallest error on the folds. The study counts 23 numbers of
a tile and does not say which; the files have 24, including the sizes added up and multiplied.
Unused slots of node features hold -1, as everywhere in this project, not 0 as in the study.

Source: Li and Mynampati, "Performance Models for Deep Neural Network Training" (CS243, Harvard,
2023), sections II.C and III. Its reported numbers are in solution/papers/published.toml.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Self

import lightgbm
import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.features.column import Feature, numbered
from solution.features.layout.tensors import find_tensors
from solution.features.preparation import neighbourhood
from solution.models.base import RankerSettings, check_no_options
from solution.models.linear import LassoSettings, LinearRanker, OrdinarySettings, RidgeSettings
from solution.models.sampling import scaled_runtime, share_rows
from solution.models.settings import check_choice, check_size
from solution.models.trees.boosted_trees import TrainingTable
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings
from solution.system.report import Report, silent

OPCODE_CHOICES = (None, "kept", "all")
# setting `opcodes` -> parts of the nodes, kept or dropped by pruning, whose opcodes are counted
PARTS = {None: (), "kept": ("kept",), "all": ("kept", "dropped")}
VALUES = range(vocabulary.LAYOUT_UNSET, vocabulary.MAX_RANK)  # the values of a layout feature
BLOCK_ENTRIES = 1 << 22  # maximum number of (configuration, node) entries in memory at once
# names of the eight numbers that describe each block of a tile
SIZES = (*(f"bound_{number}" for number in range(vocabulary.MAX_RANK)), "sum", "product")

TILE = (
    *numbered("mean_feature", "mean over nodes", "node feature of the file", 140),
    *(Feature(f"{block}_{size}", "elements", "of the tile") for block in vocabulary.TILE_BLOCKS
      for size in SIZES),
)  # fmt: skip
LAYOUT = (
    Feature("padding", "elements", "added to the outputs of configurable nodes, to 128 by 8"),
    *(Feature(f"value_{value}", "share", "of all layout features of the configuration")
      for value in VALUES),
    *(Feature(f"{name}_nodes", "count", "configurable nodes")
      for name in vocabulary.CONFIGURABLE_OPCODES),
)  # fmt: skip
MAX_TRIALS, MAX_FOLDS = 10_000, 1000


@cache
def features_of(kind: str, opcodes: str | None) -> tuple[Feature, ...]:
    """Return the description of each column of study_rows; `kind`: "layout" or "tile"."""
    names = (*vocabulary.OPCODE_NAMES.split(), "virtual")
    shares = tuple(
        Feature(f"{part}_{name}", "share", f"nodes that pruning {part}")
        for part in PARTS[opcodes]
        for name in names
    )
    return (*(TILE if kind == "tile" else LAYOUT), *shares)


def study_rows(graph: Graph, opcodes: str | None = None) -> np.ndarray:
    """Return the feature table (distinct configs, columns) float32; see features_of."""
    rows = _tile_rows(graph) if graph.collection.kind == "tile" else _layout_rows(graph)
    shares = opcode_shares(graph, opcodes)
    return np.concatenate([rows, np.tile(shares, (len(rows), 1))], axis=1).astype(np.float32)


def opcode_shares(graph: Graph, opcodes: str | None) -> np.ndarray:
    """Return the share of all nodes that is in each part and has each opcode: (parts x 121,).
    `opcodes` selects the parts (see PARTS): nodes that pruning keeps, or drops. Without
    configurable nodes, pruning keeps all."""
    is_kept = np.ones(graph.num_nodes, bool)
    if len(graph.configurable):
        is_kept = neighbourhood(graph, 1)
    shown = [graph.node_opcodes[is_kept == (part == "kept")] for part in PARTS[opcodes]]
    counts = [np.bincount(codes, minlength=vocabulary.NUM_OPCODES) for codes in shown]
    return np.concatenate([np.empty(0), *counts]) / graph.num_nodes


def _tile_rows(graph: Graph) -> np.ndarray:
    means = graph.node_features.mean(axis=0, dtype=np.float64)
    tiles = graph.tiles[graph.distinct.first]
    return np.concatenate([np.tile(means, (len(tiles), 1)), tiles], axis=1)


def _layout_rows(graph: Graph) -> np.ndarray:
    pairs = graph.layouts
    described = np.column_stack([padding_of_pairs(graph), count_values(pairs.layouts)])
    # Sum features over the nodes of each configuration; they are integers, so sums are exact in any
    # order of the nodes.
    step = max(1, BLOCK_ENTRIES // max(1, pairs.codes.shape[1]))
    blocks = [np.empty((0, described.shape[1]))]
    for first in range(0, len(pairs.codes), step):
        used = pairs.pairs(slice(first, first + step))  # (configs, configurable): index of the pair
        block = np.zeros((len(used), described.shape[1]))
        for column in used.T:  # one node at a time, to bound memory
            block += described[column]
        blocks.append(block)
    sums = np.concatenate(blocks)
    entries = max(1, len(graph.configurable) * vocabulary.NUM_LAYOUT_FEATURES)
    opcodes = graph.node_opcodes[graph.configurable]
    counts = [
        (opcodes == vocabulary.OPCODE_IDS[name]).sum() for name in vocabulary.CONFIGURABLE_OPCODES
    ]
    padding, values = sums[:, :1], sums[:, 1:] / entries
    return np.concatenate([padding, values, np.tile(counts, (len(sums), 1))], axis=1)


def count_values(layouts: np.ndarray) -> np.ndarray:
    """Return how often each of VALUES occurs in each layout: layouts (pairs, 18) -> (pairs, 7)."""
    return np.stack([(layouts == value).sum(axis=1) for value in VALUES], axis=1)


def padding_of_pairs(graph: Graph) -> np.ndarray:
    """Return, for each (node, layout) pair, the padding of the node's output in this layout: a
    number of elements (pairs,) float64."""
    pairs, tensors = graph.layouts, find_tensors(graph, "output")
    node, given = pairs.node, pairs.layouts[:, : vocabulary.MAX_RANK].astype(np.int64)
    order = np.where(given == vocabulary.LAYOUT_UNSET, tensors.layouts[node], given)
    sizes, ranks = tensors.sizes[node], tensors.ranks[node]
    row = np.arange(len(node))
    minor = sizes[row, order[:, 0]]
    second = np.where(ranks > 1, sizes[row, order[:, 1]], 1)
    # padding = elements * (product of the two most minor sizes, each rounded up to the tile) /
    # (product of these sizes) - elements
    elements = sizes.prod(axis=1).astype(np.float64)
    stored = _round_up(minor, vocabulary.LANES) * _round_up(second, vocabulary.SUBLANES)
    return elements / (minor * second) * stored - elements


def _round_up(sizes: np.ndarray, multiple: int) -> np.ndarray:
    return -(-sizes // multiple) * multiple


@cache
def cache_rows(opcodes: str | None) -> PerGraph[np.ndarray]:
    """Return a cached study_rows: the rows of a graph are kept as long as the graph exists."""
    return PerGraph(partial(study_rows, opcodes=opcodes))


@dataclass(frozen=True)
class StudySettings(RankerSettings):
    """Common settings of all models of the study."""

    # opcode shares as features: None, "kept" (of nodes that pruning keeps), or "all"
    opcodes: str | None = None

    def __post_init__(self) -> None:
        check_choice("opcodes", self.opcodes, OPCODE_CHOICES)

    @property
    def needed_hops(self) -> int | None:
        return None if self.opcodes == "all" else 1


class StudyRows:
    """Methods that all rankers on the study's feature table share."""

    settings: Any

    def rows_of(self, graph: Graph) -> np.ndarray:
        """Return the feature table (distinct configs, columns) float32."""
        check_no_options(graph)
        return cache_rows(self.settings.opcodes)(graph)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        """Return the description of each column of rows_of."""
        return features_of(graph.collection.kind, self.settings.opcodes)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """Return the targets (rows,): one graph's runtimes, scaled to 0 ... 1."""
        return scaled_runtime(runtimes)


@dataclass(frozen=True)
class StudyTreeSettings(StudySettings, PointwiseSettings):
    """Settings of StudyTreeRanker. If there are several graphs, a random search replaces the trees'
    settings; each of its `trials` ends `patience` rounds after its least error."""

    trials: int = 25  # number of settings that are drawn at random
    folds: int = 4  # number of folds of the search; a fold is a set of graphs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("trials", self.trials, MAX_TRIALS, least=0)
        check_size("folds", self.folds, MAX_FOLDS, least=2)

    def quick(self) -> Self:
        """Return a copy with a tenth of the trees and of the trials."""
        return replace(super().quick(), trials=-(-self.trials // 10))

    def build(self, seed: int) -> "StudyTreeRanker":
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
        """Return the LightGBM parameters and number of trees with the least squared error."""
        from sklearn.model_selection import GroupKFold

        settings = self.settings
        fixed = settings.parameters(self.seed, table.features.size)
        folds = min(settings.folds, len(table.sizes))
        best = (np.inf, fixed, settings.rounds)
        if folds < 2:
            return best[1:]
        groups = np.repeat(np.arange(len(table.sizes)), table.sizes)
        parts = list(GroupKFold(folds).split(table.features, groups=groups))
        for trial, drawn in enumerate(draw_settings(settings.trials, self.seed)):
            tried = fixed | drawn | {"metric": "l2", "feature_pre_filter": False}
            dataset = self.make_dataset(table)
            stop = lightgbm.early_stopping(settings.patience, verbose=False)
            found = lightgbm.cv(tried, dataset, settings.rounds, folds=parts, callbacks=[stop])
            errors = found["valid l2-mean"]
            rounds = int(np.argmin(errors)) + 1
            best = min(
                best, (errors[rounds - 1], fixed | drawn, rounds), key=lambda found: found[0]
            )
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


class StudyLinearSettings(StudySettings):
    """Common settings of the linear models; a subclass adds a model's settings."""

    def build(self, seed: int) -> StudyLinearRanker:
        return StudyLinearRanker(self, seed)  # type: ignore[arg-type]


@dataclass(frozen=True)
class StudyOrdinarySettings(StudyLinearSettings, OrdinarySettings):
    """Ordinary least squares."""


@dataclass(frozen=True)
class StudyRidgeSettings(StudyLinearSettings, RidgeSettings):
    """Ridge regression; the penalty is found by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        RidgeSettings.__post_init__(self)


@dataclass(frozen=True)
class StudyLassoSettings(StudyLinearSettings, LassoSettings):
    """Lasso; the penalty is found by grid search."""

    def __post_init__(self) -> None:
        StudySettings.__post_init__(self)
        LassoSettings.__post_init__(self)
