"""Train boosted trees that rank the configurations of a graph: lambdarank, or ranks regressed.

Source: LambdaMART (Burges, "From RankNet to LambdaRank to LambdaMART", 2010) as in LightGBM.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.neighbours import offsets
from solution.models.sampling import normalised_rank, relevance
from solution.models.trees.boosted_trees import BoostedTrees, GraphRows, TrainingTable, TreeSettings


@dataclass(frozen=True)
class LightGBMSettings(TreeSettings):
    """Settings of LightGBMRanker."""

    relevance_levels: int = 31  # bins of the ranks of a graph
    list_length: int = 64  # the rows of a graph are split into lists of at most this length

    def build(self, seed: int) -> "LightGBMRanker":
        """Return an unfitted ranker."""
        return LightGBMRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return parameters of lambdarank over whole lists with linear gains."""
        return super().parameters(seed, values) | {
            "objective": "lambdarank",
            "label_gain": list(range(self.relevance_levels)),
            "lambdarank_truncation_level": self.list_length,
        }


class RowTrees(BoostedTrees):
    """Trees that predict a label of each row; a subclass defines the label."""

    scores_beside_a_list = True

    @abstractmethod
    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """Return the labels of one graph's configurations (rows,)."""

    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        return TrainingTable(
            np.concatenate([graph.features for graph in graphs]),
            np.concatenate([self.label(graph.runtimes) for graph in graphs]),
            [len(graph.runtimes) for graph in graphs],
        )

    def questions(self, features: np.ndarray) -> np.ndarray:
        return features


class LightGBMRanker(RowTrees):
    """Lambdarank: push pairs of rows apart by what swapping them would change in the metric.

    The number of pairs of a graph is the square of its rows, and most say the same, so only rows of
    one list are compared. Relevance refers to the whole graph, so it means the same in all lists.
    """

    grouped = True

    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        table = super().make_table(graphs)
        if max(table.sizes) <= self.settings.list_length:
            return table
        order, sizes = chunk(table.sizes, self.settings.list_length, self.seed)
        return TrainingTable(table.features[order], table.labels[order], sizes)

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return relevance(runtimes, self.settings.relevance_levels)

    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        return -output  # the trees predict relevance


def chunk(sizes: Sequence[int], length: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Split lists at random into the fewest lists of at most `length` rows, of about equal length.

    Args:
        sizes: rows of each list; lists are concatenated.

    Returns:
        The order (rows,) in which rows are taken, and the size of each new list.
    """
    generator = np.random.default_rng(seed)
    order, new_sizes = [], []
    for first, size in zip(offsets(sizes), sizes, strict=True):
        order.append(first + generator.permutation(size))
        parts = np.array_split(order[-1], -(-size // length))
        new_sizes += [len(part) for part in parts]
    return np.concatenate(order), new_sizes


@dataclass(frozen=True)
class PointwiseSettings(TreeSettings):
    """Settings of PointwiseRanker."""

    def build(self, seed: int) -> "PointwiseRanker":
        """Return an unfitted ranker."""
        return PointwiseRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return parameters of least squares."""
        return super().parameters(seed, values) | {"objective": "regression"}


class PointwiseRanker(RowTrees):
    """Regress a configuration's normalised rank inside its graph."""

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return normalised_rank(runtimes)

    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        return output
