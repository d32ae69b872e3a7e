"""Boosted trees that rank the configurations inside each graph by lambdarank or rank by rank.

Source: LambdaMART (Burges, "From RankNet to LambdaRank to LambdaMART", 2010) as in LightGBM.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.ragged import offsets
from solution.models.labels import normalised_rank, relevance
from solution.models.trees.boosted_trees import BoostedTrees, GraphRows, TrainingTable, TreeSettings


@dataclass(frozen=True)
class LightGBMSettings(TreeSettings):
    """Settings of LightGBMRanker."""

    relevance_levels: int = 31  # the ranks of a graph are binned into so many
    list_length: int = 64  # the rows of a graph are divided into lists of at most so many

    def build(self, seed: int) -> "LightGBMRanker":
        """Make a ranker that is not fitted yet."""
        return LightGBMRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Lambdarank over whole lists with linear gains."""
        return super().parameters(seed, values) | {
            "objective": "lambdarank",
            "label_gain": list(range(self.relevance_levels)),
            "lambdarank_truncation_level": self.list_length,
        }


class RowTrees(BoostedTrees):
    """Trees that learn a label of each row; a subclass says which."""

    scores_beside_a_list = True

    @abstractmethod
    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """What is learned of the configurations (rows,) of one graph."""

    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        return TrainingTable(
            np.concatenate([graph.features for graph in graphs]),
            np.concatenate([self.label(graph.runtimes) for graph in graphs]),
            [len(graph.runtimes) for graph in graphs],
        )

    def questions(self, features: np.ndarray) -> np.ndarray:
        return features


class LightGBMRanker(RowTrees):
    """Lambdarank: pairs of a graph are pushed apart by what swapping them would change.

    All pairs of a graph are as many as its rows squared, and most say the same: only rows of one
    list meet. Relevance is that in the whole graph, so it means the same in all its lists.
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
    """Divide lists at random into as few as have at most `length` rows each, equally long.

    Args:
        sizes: Rows of each list, which lie one after the other.

    Returns:
        The order (rows,) in which the rows are taken, and how many each new list has.
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
        """Make a ranker that is not fitted yet."""
        return PointwiseRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Least squares."""
        return super().parameters(seed, values) | {"objective": "regression"}


class PointwiseRanker(RowTrees):
    """Regression of a configuration's normalised rank inside its graph."""

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return normalised_rank(runtimes)

    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        return output
