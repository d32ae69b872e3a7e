"""Rank configurations by boosted trees, trained by LambdaRank or by regression of ranks.

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

    # number of relevance grades that the ranks of a graph are divided into
    relevance_levels: int = 31
    # a graph's rows are split into groups of at most this size; the loss compares inside a group
    list_length: int = 64

    def build(self, seed: int) -> "LightGBMRanker":
        return LightGBMRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return parameters for lambdarank: all pairs of a group, linear gain of grades."""
        return super().parameters(seed, values) | {
            "objective": "lambdarank",
            "label_gain": list(range(self.relevance_levels)),
            "lambdarank_truncation_level": self.list_length,
        }


class RowTrees(BoostedTrees):
    """Trees that predict one label for each configuration; a subclass defines the label."""

    scores_beside_a_list = True

    @abstractmethod
    def label(self, runtimes: np.ndarray) -> np.ndarray:
        """Return labels (rows,) of one graph's distinct configurations."""

    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        return TrainingTable(
            np.concatenate([graph.features for graph in graphs]),
            np.concatenate([self.label(graph.runtimes) for graph in graphs]),
            [len(graph.runtimes) for graph in graphs],
        )

    def questions(self, features: np.ndarray) -> np.ndarray:
        return features


class LightGBMRanker(RowTrees):
    """A ranker trained by lambdarank: trees predict relevance grades, learned from pairs of rows. A
    row's grade depends on its rank in the whole graph, but most of a graph's pairs are redundant,
    so rows are split into small groups and compared inside a group only."""

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
        return -output  # negative, because the trees predict relevance, the highest for the fastest


def chunk(sizes: Sequence[int], length: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Split groups of `sizes` rows at random into the fewest groups of at most `length`, about
    equally large. Return the order (rows,) in which rows are taken, and the new groups' sizes."""
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
        return PointwiseRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Return LightGBM's parameters for least-squares regression."""
        return super().parameters(seed, values) | {"objective": "regression"}


class PointwiseRanker(RowTrees):
    """A ranker trained by regression: trees predict a configuration's normalised rank in its
    graph."""

    def label(self, runtimes: np.ndarray) -> np.ndarray:
        return normalised_rank(runtimes)

    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        return output
